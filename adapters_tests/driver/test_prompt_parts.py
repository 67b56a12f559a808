"""Prompts as parts for a runtime and back: every block comes back exactly, whatever it holds."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.acp.errors import InvalidParams
from adapters.acp.schema import (
    AudioBlock,
    BlobResource,
    ContentBlock,
    ImageBlock,
    ResourceBlock,
    ResourceLinkBlock,
    TextBlock,
    TextResource,
    dump,
)
from adapters.driver.prompt_parts import File, Part, from_parts, to_parts
from adapters_tests.driver.test_images import PNG

PDF = base64.b64encode(b"%PDF-1.4\n").decode()
LINK = '<resource_link name="a" uri="file:///a"/>'


def parts_of(prompt: list[ContentBlock], *, takes_pdf: bool = True) -> list[Part]:
    return [part for block in prompt for part in to_parts(block, "prompt[1]", runtime="It", takes_pdf=takes_pdf)]


def shown(blocks: list[ContentBlock]) -> list[dict[str, Any]]:
    return [dump(block) for block in blocks]


texts = st.one_of(st.sampled_from([LINK, "\\\\" + LINK, '<image uri="x"/>', "<resource"]), st.text(max_size=20))
blocks = st.one_of(
    texts.map(lambda text: TextBlock(text=text)),
    st.builds(lambda name, uri: ResourceLinkBlock(name=name, uri=uri), texts, texts),
    st.builds(lambda uri, text: ResourceBlock(resource=TextResource(uri=uri, text=text)), texts, texts),
    texts.map(
        lambda text: ResourceBlock(resource=BlobResource(uri="u", blob=base64.b64encode(text.encode()).decode()))
    ),
    st.sampled_from(
        [
            ImageBlock(data=PNG, mime_type="image/png"),
            ImageBlock(data=PNG, mime_type="image/png", uri="file:///x.png"),
            ResourceBlock(resource=BlobResource(uri="file:///x.png", blob=PNG, mime_type="image/png")),
            ResourceBlock(resource=BlobResource(uri="file:///x.pdf", blob=PDF, mime_type="application/pdf")),
        ]
    ),
)


@given(st.lists(blocks, max_size=5))
@example([TextBlock(text='<image uri="x"/>'), ImageBlock(data=PNG, mime_type="image/png")])
@example([TextBlock(text='<resource uri="x" follows/>'), ImageBlock(data=PNG, mime_type="image/png")])
def test_what_was_sent_is_what_is_read(prompt: list[ContentBlock]) -> None:
    """PROMPT-20, REPLAY-3."""
    assert shown(from_parts(parts_of(prompt))) == shown(prompt)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (
            ImageBlock(data=base64.b64encode(b"<html>").decode(), mime_type="image/png"),
            r"image in prompt\[1\] is none of",
        ),
        (AudioBlock(data="AAAA", mime_type="audio/wav"), r"prompt\[1\] has a type that It cannot take"),
        (
            ResourceBlock(resource=BlobResource(uri="x", blob=base64.b64encode(b"\xff\0").decode())),
            "It takes text, images",
        ),
        (ResourceBlock(resource=BlobResource(uri="x", blob=PNG, mime_type="application/pdf")), "not a PDF"),
        (ResourceBlock(resource=BlobResource(uri="x", blob=PDF, mime_type="image/png")), "is none of"),
    ],
)
def test_what_cannot_be_given_is_refused(block: ContentBlock, reason: str) -> None:
    """PROMPT-13: nothing is skipped or changed in silence."""
    with pytest.raises(InvalidParams, match=reason):
        parts_of([block])


def test_a_document_for_a_runtime_that_takes_none_is_a_file_like_any_other() -> None:
    """As text when it is text, else refused."""
    pdf = ResourceBlock(resource=BlobResource(uri="x", blob=PDF, mime_type="application/pdf"))
    assert parts_of([pdf], takes_pdf=False) == [
        '<resource uri="x" mimeType="application/pdf" base64>\n%PDF-1.4\n\n</resource>'
    ]
    binary = BlobResource(uri="x", blob=base64.b64encode(b"%PDF-1.4\xff").decode(), mime_type="application/pdf")
    with pytest.raises(InvalidParams, match="takes text and images only"):
        parts_of([ResourceBlock(resource=binary)], takes_pdf=False)


def test_stored_parts_that_belong_to_nothing_are_shown_alone() -> None:
    """Of other hosts, or with a part lost between a description and its file."""
    image, document = File("image", "image/x", PNG), File("document", "application/pdf", PDF, "file:///t")
    link = ResourceLinkBlock(name="n", uri="u")
    described = '<image uri="x"/>'
    shown_image = {"type": "image", "data": PNG, "mimeType": "image/x"}
    shown_document = {
        "type": "resource",
        "resource": {"uri": "file:///t", "mimeType": "application/pdf", "blob": PDF},
    }
    assert shown(from_parts([image, document, link, None])) == [shown_image, shown_document, dump(link)]
    assert shown(from_parts([described, None, image])) == [{"type": "text", "text": described}, shown_image]
    assert shown(from_parts([described, document])) == [{"type": "text", "text": described}, shown_document]


def test_the_first_bytes_decide_the_type_of_an_image() -> None:
    """A model's API refuses a PNG that is called a JPEG."""
    assert parts_of([ImageBlock(data=PNG, mime_type="image/jpeg")]) == [File("image", "image/png", PNG)]
