"""A prompt's way into Claude Code's content and back: what was sent is what replay shows."""

import base64
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.acp.errors import InvalidParams
from adapters.acp.framing import decode, encode
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
from adapters.claude.stored.content import escape, from_content, split_merged, to_content, to_message, unescape

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = base64.b64encode(b"%PDF-1.4\n").decode()
COMMAND = (
    "<command-name>/usage</command-name>\n            <command-message>usage</command-message>\n"
    "            <command-args>now  please</command-args>"
)
LINK = '<resource_link name="a" uri="file:///a"/>'
RESOURCE = '<resource uri="file:///a">\nbody\n</resource>'


def shown(blocks: list[ContentBlock]) -> list[dict[str, Any]]:
    return [dump(block) for block in blocks]


def over_the_wire(content: Any) -> Any:
    """What the runtime stores: the same JSON, written and read once (lone surrogates as escapes)."""
    return decode(encode({"content": content}).rstrip(b"\n"))["content"]


JS_WHITE = "\t\n\v\f\r\u2028\u2029\ufeff" + "".join(
    c for c in map(chr, range(0x10000)) if unicodedata.category(c) == "Zs"
)
PIECES = (
    *("\u200b", "\ufeff", "\u00a0", "\t"),
    *("<", ">", "/>", "\\", "\n", " ", '"', "=", "&", "]]>", "{}", "\u2028", "\udcb2", "é", "/cost", "</resource>"),
    *("resource", "resource_link", "image", "uri", "name", "follows", "base64", LINK, RESOURCE, COMMAND),
)
pieces = st.sampled_from(PIECES)
texts = st.one_of(st.lists(pieces, max_size=8).map("".join), st.text(st.characters(exclude_categories=()), max_size=20))
optional_texts = st.none() | texts


def given_fields(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


text_blocks = texts.map(lambda text: TextBlock(text=text))
links = st.builds(
    lambda name, uri, title, size, meta: ResourceLinkBlock(
        **given_fields(name=name, uri=uri, title=title, size=size, meta=meta)
    ),
    texts,
    texts,
    optional_texts,
    st.none() | st.integers(0, 2**53),
    st.none() | st.dictionaries(texts, texts | st.integers(-5, 5), max_size=2),
)
resources = st.builds(
    lambda uri, text, mime_type, meta: ResourceBlock(
        resource=TextResource(**given_fields(uri=uri, text=text, mime_type=mime_type, meta=meta)),
        **given_fields(meta=meta),
    ),
    texts,
    texts,
    optional_texts,
    st.none() | st.dictionaries(texts, texts, max_size=2),
)
blobs = st.builds(
    lambda uri, data: ResourceBlock(resource=BlobResource(uri=uri, blob=base64.b64encode(data.encode()).decode())),
    texts,
    st.text(max_size=20),
)
media = st.sampled_from(
    [
        ImageBlock(data=PNG, mime_type="image/png"),
        ImageBlock(data=PNG, mime_type="image/png", uri="file:///x.png"),
        ResourceBlock(resource=BlobResource(uri="file:///x.png", blob=PNG, mime_type="image/png")),
        ResourceBlock(resource=BlobResource(uri="file:///x.pdf", blob=PDF, mime_type="application/pdf")),
    ]
)


@given(st.lists(text_blocks | links | resources | blobs | media, min_size=1, max_size=5))
@example([TextBlock(text=LINK), TextBlock(text="\\" + LINK), TextBlock(text=RESOURCE + "\n"), TextBlock(text=COMMAND)])
@example([TextBlock(text='<image uri="x"/>'), ImageBlock(data=PNG, mime_type="image/png")])
@example([TextBlock(text='<resource uri="x" follows/>'), ImageBlock(data=PNG, mime_type="image/png")])
def test_what_was_sent_is_what_is_read(prompt: list[ContentBlock]) -> None:
    """PROMPT-20, REPLAY-3: text that looks like our markup stays text, everything else comes back exactly."""
    for literal in (False, True):
        content = to_message(to_content(prompt), literal=literal)
        assert shown(from_content(over_the_wire(content))) == shown(prompt)
        if literal:
            assert shown(from_content(stored_behind_a_tool(over_the_wire(content)))) == shown(prompt)


def stored_behind_a_tool(content: Any) -> Any:
    """What Claude Code 2.1.332 stores of a prompt that a running turn takes in: without the white space around its text."""
    texts = [content] if isinstance(content, str) else [block["text"] for block in content if "text" in block]
    text = "\n".join(texts)
    if text and not js_strip(text):
        return "(no content)"
    if isinstance(content, str) or js_strip(text) == text:
        return content
    return [{"type": "text", "text": js_strip(text)}, *(block for block in content if "text" not in block)]


def js_strip(text: str) -> str:
    """ECMAScript's `trim`: its white space and line terminators."""
    return text.strip(JS_WHITE)


@given(texts)
def test_text_is_sent_as_typed_unless_it_looks_like_markup(text: str) -> None:
    """A user's text reaches the model unchanged; only a look-alike gets a backslash in front."""
    assert escape(text) in (text, "\\" + text)
    assert unescape(escape(text)) == text
    if not text.lstrip("\\").startswith(("<resource", "<image ", "<command-")):
        assert escape(text) == text


@pytest.mark.parametrize(
    "text",
    [
        '<resource_link name="a"  uri="b"/>',
        '<resource_link name="a" uri="b">',
        "<resource_link />",
        '<resource_link name="\\u0061" uri="b"/>',
        '<resource_link name="a" name="a" uri="b"/>',
        '<resource uri="a">no newline</resource>',
        "<resource uri=>\nx\n</resource>",
        "<resource_link uri=" + "[" * 100_000,
        "<resource_link" + ' a="b"' * 50_000 + "/>",
        "see " + LINK,
        LINK + " please",
    ],
)
def test_only_what_we_write_is_markup(text: str) -> None:
    """Text of a user or another host that is not byte for byte ours stays text."""
    assert shown(from_content([{"type": "text", "text": text}])) == [{"type": "text", "text": text}]
    assert to_content([TextBlock(text=text)]) == [{"type": "text", "text": text}]


def test_the_model_sees_readable_text() -> None:
    """The markup is what the module's head says."""
    prompt = [
        ResourceLinkBlock(name="notes.md", uri="file:///home/u/notes.md"),
        ResourceBlock(
            resource=TextResource(uri="file:///home/u/a.py", text='print("hello")', mime_type="text/x-python")
        ),
        TextBlock(text="explain"),
    ]
    assert [block["text"] for block in to_content(prompt)] == [
        '<resource_link name="notes.md" uri="file:///home/u/notes.md"/>',
        '<resource uri="file:///home/u/a.py" mimeType="text/x-python">\nprint("hello")\n</resource>',
        "explain",
    ]


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (ImageBlock(data=base64.b64encode(b"<html>hello").decode(), mime_type="image/png"), "is none of"),
        (ImageBlock(data="", mime_type="image/png"), "is empty"),
        (ImageBlock(data="not base64!", mime_type="image/png"), "base64"),
        (ImageBlock(data=PNG[:-3], mime_type="image/png"), "base64"),
        (
            ImageBlock(
                data=base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x23\x28\0\0\0\x14").decode(),
                mime_type="image/png",
            ),
            "8000 pixels",
        ),
        (AudioBlock(data="AAAA", mime_type="audio/wav"), "cannot take"),
        (ResourceBlock(resource=BlobResource(uri="file:///x", blob=base64.b64encode(b"\xff\0").decode())), "binary"),
        (ResourceBlock(resource=BlobResource(uri="x", blob=PNG, mime_type="application/pdf")), "not a PDF"),
        (ResourceBlock(resource=BlobResource(uri="x", blob=PDF, mime_type="image/png")), "is none of"),
    ],
)
def test_what_cannot_be_given_is_refused(block: ContentBlock, reason: str) -> None:
    """PROMPT-13: a block that would poison the session or be lost refuses the whole prompt, before anything is sent."""
    with pytest.raises(InvalidParams, match=reason) as caught:
        to_content([TextBlock(text="x"), block])
    assert "prompt[1]" in caught.value.message


def test_an_image_travels_under_the_type_its_bytes_show() -> None:
    (block,) = to_content([ImageBlock(data=PNG, mime_type="image/jpeg")])
    assert block["source"]["media_type"] == "image/png"


def test_slash_commands_read_as_typed() -> None:
    """What the runtime stores as tags is what the user typed, also behind other blocks."""
    assert shown(from_content(COMMAND)) == [{"type": "text", "text": "/usage now  please"}]
    other = "<command-message>foo</command-message>\n<command-name>/foo</command-name>"
    assert shown(from_content([{"type": "text", "text": "a"}, {"type": "text", "text": other}])) == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "/foo"},
    ]


def test_other_hosts_content_is_read() -> None:
    """Blocks that we never write still show what can be shown."""
    content = [
        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "t"}, "title": "file:///t"},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
        {"type": "tool_reference", "name": "x"},
        {"type": "text", "text": 5},
        None,
    ]
    assert shown(from_content(content)) == [
        {"type": "resource_link", "name": "image", "uri": "https://x/y.png"},
        {"type": "resource", "resource": {"uri": "file:///t", "text": "t", "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "attachment:document", "blob": PDF, "mimeType": "application/pdf"}},
    ]


def test_image_that_the_runtime_replaced_leaves_its_description() -> None:
    """The runtime puts text in place of an image it cannot read; nothing is lost with it."""
    content = [{"type": "text", "text": '<image uri="x"/>'}, {"type": "text", "text": "[Image could not be processed]"}]
    assert [block["text"] for block in shown(from_content(content))] == [
        '<image uri="x"/>',
        "[Image could not be processed]",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "text", "source", "data", "media_type", "url", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON)
@example([{"type": "image", "source": {"data": "x"}}, {"type": "document", "source": {"data": "\udcb2"}}])
def test_any_content_is_read(content: Any) -> None:
    """D11: a wrong type anywhere costs at most that block."""
    for block in from_content(content):
        dump(block)
    split_merged(content, 1)


def texts_of(*values: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": value} for value in values]


@pytest.mark.parametrize(
    ("content", "merged", "prompts"),
    [
        ("s1\ns2", 1, ["s1", "s2"]),
        ("s1\nline\ns2", 1, None),
        (texts_of("m1", "m1b\n", "m2\n", "m3"), 2, [texts_of("m1", "m1b"), texts_of("m2"), texts_of("m3")]),
        (texts_of("m1\n", "own\n", "m2"), 1, None),
        ([*texts_of("m1\n"), {"type": "image"}], 1, None),
        (None, 1, None),
    ],
)
def test_merged_prompts_are_told_apart_only_when_certain(content: Any, merged: int, prompts: Any) -> None:
    """Claude Code 2.1.332 joins waiting prompts with a newline each; a newline of a user's own makes it uncertain."""
    assert split_merged(content, merged) == prompts


def test_markup_in_a_merged_prompt_is_still_markup() -> None:
    """The newline with which prompts are merged does not hide a resource."""
    (block, _) = from_content(texts_of(LINK + "\n", "next"))
    assert dump(block)["type"] == "resource_link"
