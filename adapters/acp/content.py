"""Content blocks (CONT-*): the parts of prompts, messages, thoughts and tool results. Knows no sender."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from adapters.acp.model import OPEN, Number, Optional, OptionalItems, Other, Text, Uint, Wire, by_tag

Role = Annotated[Literal["user", "assistant"], OPEN]


class Annotations(Wire):
    """Hints for the reader of a block."""

    audience: OptionalItems[Role] = None
    last_modified: Optional[Text] = None
    priority: Optional[Annotated[Number, Field(ge=0, le=1)]] = None


class TextBlock(Wire):
    """Text, Markdown where shown."""

    type: Literal["text"] = "text"
    text: Text
    annotations: Optional[Annotations] = None


class ImageBlock(Wire):
    """An image; `data` is base64."""

    type: Literal["image"] = "image"
    data: Text
    mime_type: Text
    uri: Optional[Text] = None
    annotations: Optional[Annotations] = None


class AudioBlock(Wire):
    """Sound; `data` is base64."""

    type: Literal["audio"] = "audio"
    data: Text
    mime_type: Text
    annotations: Optional[Annotations] = None


class Icon(Wire):
    """An icon; `src` is an `https:` or `data:` URI."""

    src: Text
    mime_type: Optional[Text] = None
    sizes: OptionalItems[Text] = None
    theme: Optional[Annotated[Literal["light", "dark"], OPEN]] = None


class ResourceLinkBlock(Wire):
    """A reference to something the reader can fetch."""

    type: Literal["resource_link"] = "resource_link"
    name: Text
    uri: Text
    title: Optional[Text] = None
    description: Optional[Text] = None
    icons: OptionalItems[Icon] = None
    mime_type: Optional[Text] = None
    size: Optional[Uint] = None
    """Bytes."""
    annotations: Optional[Annotations] = None


class TextResource(Wire):
    """The text of an embedded resource."""

    text: Text
    uri: Text
    mime_type: Optional[Text] = None


class BlobResource(Wire):
    """The bytes of an embedded resource, in base64."""

    blob: Text
    uri: Text
    mime_type: Optional[Text] = None


def _resource_kind(value: object) -> str:
    if isinstance(value, dict):
        return "<blob>" if "blob" in value and not isinstance(value.get("text"), str) else "<text>"  # pyright: ignore[reportUnknownMemberType]
    return "<blob>" if isinstance(value, BlobResource) else "<text>"


class ResourceBlock(Wire):
    """A resource that travels with the message."""

    type: Literal["resource"] = "resource"
    resource: Annotated[
        Annotated[TextResource, Tag("<text>")] | Annotated[BlobResource, Tag("<blob>")], Discriminator(_resource_kind)
    ]
    annotations: Optional[Annotations] = None


class OtherBlock(Other):
    """A block of a type this package does not know: preserved when stored, replayed or forwarded (CONT-1)."""

    type: Text


ContentBlock = Annotated[
    Annotated[TextBlock, Tag("<text>")]
    | Annotated[ImageBlock, Tag("<image>")]
    | Annotated[AudioBlock, Tag("<audio>")]
    | Annotated[ResourceLinkBlock, Tag("<resource_link>")]
    | Annotated[ResourceBlock, Tag("<resource>")]
    | Annotated[OtherBlock, Tag("<other>")],
    by_tag("type", "text", "image", "audio", "resource_link", "resource"),
]
"""Any content block."""

PromptBlock = Annotated[
    Annotated[TextBlock, Tag("<text>")]
    | Annotated[ImageBlock, Tag("<image>")]
    | Annotated[AudioBlock, Tag("<audio>")]
    | Annotated[ResourceLinkBlock, Tag("<resource_link>")]
    | Annotated[ResourceBlock, Tag("<resource>")],
    by_tag("type", "text", "image", "audio", "resource_link", "resource", other=False),
]
"""A block of a prompt: unknown types are malformed there (PROMPT-13)."""
