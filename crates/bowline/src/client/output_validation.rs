//! Validates `structuredContent` against the `outputSchema` of its tool, as seen in `tools/list`.

use std::sync::OnceLock;

use bowline_types::Json;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::schema::CompiledSchema;
use crate::{Error, Result};

/// When `structuredContent` is validated against the `outputSchema` of its tool.
///
/// Both come from the server, so the work is bounded. The call fails with [`Error::Protocol`] if the schema is invalid,
/// refers to another document, or exceeds 256 KiB, 20,000 parts or 256 references, and if validation would take more
/// than a million steps; [`Off`](Self::Off) accepts such output. Up to 16 MiB of schemas are stored.
///
/// Without the feature `validate`, only the presence of `structuredContent` is checked.
///
/// # Examples
///
/// ```
/// # async fn example(server: bowline::Server) -> bowline::Result<()> {
/// use bowline::{Client, client::OutputValidation};
///
/// let client = Client::in_process(&server).output_validation(OutputValidation::Listed).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputValidation {
    /// Never.
    Off,
    /// If the tool was in a `tools/list` result.
    Listed,
    /// As [`Listed`](Self::Listed); in addition, the first structured output of an unknown tool makes the client send
    /// `tools/list`, once until the list changes. If that fails or takes long, the output is not validated.
    #[default]
    ListOnce,
}

/// An output schema as text, compiled on first use.
pub(super) struct OutputSchema {
    text: Json,
    compiled: OnceLock<std::result::Result<CompiledSchema, String>>,
}

impl OutputSchema {
    pub(super) fn new(text: Json) -> Self {
        let compiled = OnceLock::new();
        Self { text, compiled }
    }

    pub(super) fn text(&self) -> &str {
        self.text.as_str()
    }

    /// Checks the result of a call of `tool`.
    pub(super) fn check_result(&self, tool: &str, result: &Json) -> Result<()> {
        let Ok(output) = result.decode::<ToolOutput<'_>>() else {
            return Ok(()); // The error is reported when the result is decoded for the caller.
        };
        if output.is_error == Some(true) {
            return Ok(());
        }
        let Some(structured) = output.structured_content else {
            return Err(Error::protocol(format!(
                "tool `{tool}` has an output schema but returned no `structuredContent`"
            )));
        };
        let schema = self
            .compiled
            .get_or_init(|| CompiledSchema::read(&self.text));
        let schema = schema.as_ref().map_err(|why| {
            Error::protocol(format!("unusable output schema of tool `{tool}`: {why}"))
        })?;
        schema.check(structured.get()).map_err(|why| {
            Error::protocol(format!(
                "`structuredContent` of tool `{tool}` does not match its output schema: {why}"
            ))
        })
    }
}

/// A tool result, reduced to what is needed here. `null` is structured content too, unlike a missing member.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolOutput<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: Option<bool>,
}

fn present<'de, D: serde::Deserializer<'de>>(
    member: D,
) -> std::result::Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(member).map(Some)
}
