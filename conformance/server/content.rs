//! Tools that return every kind of content, errors, and a tool with an advanced JSON schema.

use bowline::prelude::*;
use bowline::types::{
    AudioContent, ContentBlock, EmbeddedResource, ImageContent, TextResourceContents,
};
use bowline::{CallToolResult, Tool};
use serde_json::json;

pub(crate) fn register(server: Server) -> Server {
    server
        .tool(about)
        .tool(test_simple_text)
        .tool(test_image_content)
        .tool(test_audio_content)
        .tool(test_embedded_resource)
        .tool(test_multiple_content_types)
        .tool(test_error_handling)
        .tool(test_custom_header)
        .tool(json_schema_2020_12_tool)
}

/// A PNG of one pixel.
pub(crate) fn picture() -> ImageContent {
    ImageContent::new(PNG, "image/png")
}

/// A text as an embedded resource.
pub(crate) fn embedded(uri: &str, mime_type: &str, text: &str) -> EmbeddedResource {
    let mut contents = TextResourceContents::new(uri, text);
    contents.mime_type = Some(mime_type.to_owned());
    EmbeddedResource::new(contents)
}

/// Describes this server.
///
/// The suite calls the first tool of the list, which is sorted by name, and passes no arguments.
#[tool]
async fn about() -> &'static str {
    "Provides every feature for tests."
}

/// Returns a text.
#[tool]
async fn test_simple_text() -> &'static str {
    "This is a simple text response for testing."
}

/// Returns a picture.
#[tool]
async fn test_image_content() -> ImageContent {
    picture()
}

/// Returns a sound.
#[tool]
async fn test_audio_content() -> AudioContent {
    AudioContent::new(WAV, "audio/wav")
}

/// Returns a resource.
#[tool]
async fn test_embedded_resource() -> EmbeddedResource {
    embedded(
        "test://embedded-resource",
        "text/plain",
        "This is an embedded resource content.",
    )
}

/// Returns a text, a picture and a resource.
#[tool]
async fn test_multiple_content_types() -> Vec<ContentBlock> {
    vec![
        ContentBlock::text("Multiple content types test:"),
        picture().into(),
        embedded(
            "test://mixed-content-resource",
            "application/json",
            r#"{"test":"data","value":123}"#,
        )
        .into(),
    ]
}

/// Fails.
#[tool]
async fn test_error_handling() -> Result<(), ToolError> {
    let why = "This tool intentionally returns an error for testing";
    Err(ToolError::new(why))
}

/// Returns a value that is also mirrored in an HTTP header.
#[tool]
async fn test_custom_header(
    /// the returned value
    #[header("Value")]
    value: String,
) -> String {
    value
}

/// A tool whose schema must reach clients unchanged.
fn json_schema_2020_12_tool() -> Tool {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            },
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {
            "properties": {"contactMethod": {"const": "phone"}},
            "required": ["contactMethod"],
        },
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    });
    Tool::raw(
        "json_schema_2020_12_tool",
        schema,
        async |arguments, _cx| Ok(CallToolResult::text(arguments.to_string())),
    )
    .description("Returns its arguments.")
}

/// One red pixel, in base64.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// One sample of silence, in base64.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";
