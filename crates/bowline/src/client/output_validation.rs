//! Validates `structuredContent` against the `outputSchema` of its tool, as seen in `tools/list`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_types::Json;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::schema::CompiledSchema;
use crate::sync::Mutex;
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
    /// Always. The first structured output of an unknown tool makes the client send `tools/list`, once.
    #[default]
    ListOnce,
}

/// The output schemas of the known tools.
pub(super) struct OutputSchemas {
    mode: OutputValidation,
    table: Mutex<SchemaTable>,
}

#[derive(Default)]
struct SchemaTable {
    tools: BTreeMap<String, Option<Arc<OutputSchema>>>,
    /// The size of all names and schemas.
    bytes: usize,
    /// Whether the tools were already listed for validation.
    was_listed: bool,
}

/// An output schema as text, compiled on first use.
struct OutputSchema {
    text: Json,
    compiled: std::sync::OnceLock<std::result::Result<CompiledSchema, String>>,
}

/// The outcome of [`OutputSchemas::validate`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ValidationStatus {
    /// The result is valid, or there is no schema to validate it against.
    Valid,
    /// The tool is unknown; list the tools and validate again.
    UnknownTool,
}

impl OutputSchemas {
    pub(super) fn new(mode: OutputValidation) -> Self {
        let table = Mutex::default();
        Self { mode, table }
    }

    /// Stores the output schemas of a `tools/list` page.
    pub(super) fn store(&self, page: &Json) {
        #[derive(Deserialize)]
        struct ToolPage<'a> {
            #[serde(borrow)]
            tools: Vec<ListedTool<'a>>,
        }

        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListedTool<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(borrow, default)]
            output_schema: Option<&'a RawValue>,
        }

        if self.mode == OutputValidation::Off {
            return;
        }
        let Ok(ToolPage { tools }) = page.decode::<ToolPage<'_>>() else {
            return; // The error is reported when the page is decoded for the caller.
        };
        let mut table = self.table.lock();
        for tool in tools {
            table.store(&tool.name, tool.output_schema.map(RawValue::get));
        }
    }

    /// Removes all schemas, because the tools changed.
    pub(super) fn clear(&self) {
        *self.table.lock() = SchemaTable::default();
    }

    /// Validates the result of a `tools/call` request.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if it does not match the output schema of the tool.
    pub(super) fn validate(&self, params: &Json, result: &Json) -> Result<ValidationStatus> {
        // Without decoding: most results have no structured content, and no tool has a known schema.
        let is_structured = result.as_str().contains(r#""structuredContent""#);
        if self.mode == OutputValidation::Off
            || (!is_structured && self.table.lock().tools.is_empty())
        {
            return Ok(ValidationStatus::Valid);
        }
        let Ok(CalledTool { name }) = params.decode::<CalledTool<'_>>() else {
            return Ok(ValidationStatus::Valid);
        };
        let known = self.table.lock().tools.get(&*name).cloned();
        match known {
            Some(Some(schema)) => schema
                .check_result(&name, result)
                .map(|()| ValidationStatus::Valid),
            None if is_structured => Ok(self.unknown_tool()),
            Some(None) | None => Ok(ValidationStatus::Valid),
        }
    }

    /// Returns [`ValidationStatus::UnknownTool`] once, if the tools may be listed for validation.
    fn unknown_tool(&self) -> ValidationStatus {
        let mut table = self.table.lock();
        if self.mode == OutputValidation::ListOnce && !table.was_listed {
            table.was_listed = true;
            ValidationStatus::UnknownTool
        } else {
            ValidationStatus::Valid
        }
    }
}

impl SchemaTable {
    /// Stores a tool and its schema, up to [`MAX_BYTES`].
    fn store(&mut self, name: &str, schema: Option<&str>) {
        let old = self.tools.get(name);
        let is_known = old.is_some_and(|old| {
            let old = old.as_ref().map(|old| old.text.as_str());
            old == schema
        });
        if is_known {
            return;
        }
        let size = |schema: Option<&str>| ENTRY_OVERHEAD + name.len() + schema.map_or(0, str::len);
        if let Some(old) = self.tools.remove(name) {
            self.bytes -= size(old.as_ref().map(|old| old.text.as_str()));
        }
        if self.bytes + size(schema) > MAX_BYTES {
            tracing::warn!(
                tool = name,
                "output schemas exceed the limit of {MAX_BYTES} bytes; this one is not stored"
            );
            return;
        }
        self.bytes += size(schema);
        // A copy: a slice of the page would keep the whole page in memory.
        let text = schema.and_then(|schema| Json::parse(schema.to_owned()).ok());
        let schema = text.map(|text| Arc::new(OutputSchema::new(text)));
        self.tools.insert(name.to_owned(), schema);
    }
}

impl OutputSchema {
    fn new(text: Json) -> Self {
        let compiled = std::sync::OnceLock::new();
        Self { text, compiled }
    }

    fn check_result(&self, tool: &str, result: &Json) -> Result<()> {
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

/// The params of `tools/call`, reduced to what is needed here.
#[derive(Deserialize)]
struct CalledTool<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
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

/// The maximum size of all names and schemas: 16 MiB.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The size of an entry without its name and schema, in bytes.
const ENTRY_OVERHEAD: usize = 128;

fn present<'de, D: serde::Deserializer<'de>>(
    member: D,
) -> std::result::Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(member).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(tool: usize, length: usize) -> Json {
        let schema = json!({"description": "x".repeat(length)});
        json!({"tools": [{"name": tool.to_string(), "outputSchema": schema}]}).into()
    }

    #[test]
    fn schemas_are_stored_up_to_the_limit_and_again_after_they_were_cleared() {
        let schemas = OutputSchemas::new(OutputValidation::Listed);
        let stored = |schemas: &OutputSchemas| schemas.table.lock().tools.len();

        for tool in 0..20 {
            schemas.store(&page(tool, 1024 * 1024));
        }
        assert_eq!(stored(&schemas), 15);
        // The same schema again takes no memory, and a shorter one frees some.
        schemas.store(&page(0, 1024 * 1024));
        schemas.store(&page(0, 10));
        schemas.store(&page(20, 1024 * 1024));
        assert_eq!(stored(&schemas), 16);

        schemas.clear();
        schemas.store(&page(20, 1024 * 1024));
        assert_eq!(stored(&schemas), 1);
    }
}
