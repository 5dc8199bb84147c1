//! What tools promise about their structured output, and whether they keep it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_types::Json;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::schema::Schema;
use crate::{Error, Result};

/// When structured output is checked against the schema of its tool.
///
/// The server writes both, so a check takes a bounded number of steps. A schema that cannot be used fails the call with
/// [`Error::Protocol`]: one that is no JSON Schema, refers to another document, or has more than 256 KiB, 20,000 parts or
/// 256 references; so does an output that takes more than a million steps to check. [`Off`](Self::Off) takes such output as
/// it comes. Schemas are remembered up to 16 MiB in all.
///
/// # Examples
///
/// ```
/// # async fn example(server: bowline::Server) -> bowline::Result<()> {
/// use bowline::{Client, client::OutputCheck};
///
/// let client = Client::to(&server).output_check(OutputCheck::Listed).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputCheck {
    /// Never.
    Off,
    /// If the tool was seen on a list.
    Listed,
    /// Always: the first structured output of a tool that was not seen on a list makes the client list
    /// the tools, once.
    #[default]
    ListOnce,
}

/// The promises of the tools that were seen.
pub(super) struct Outputs {
    check: OutputCheck,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    tools: BTreeMap<String, Option<Arc<Promise>>>,
    /// How many bytes the names and schemas take.
    bytes: usize,
    /// Whether the tools were listed for the sake of checking.
    was_listed: bool,
}

/// A schema as it came, and ready for use once it was needed.
struct Promise {
    text: Json,
    schema: std::sync::OnceLock<std::result::Result<Schema, String>>,
}

/// What a look at a result brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// It is fine, or nobody can say.
    Fine,
    /// The tool is not known yet, and listing would help.
    Unlisted,
}

impl Outputs {
    pub(super) fn new(check: OutputCheck) -> Self {
        let known = Mutex::default();
        Self { check, known }
    }

    /// Takes note of a page of tools.
    pub(super) fn learn(&self, page: &Json) {
        #[derive(Deserialize)]
        struct Page<'a> {
            #[serde(borrow)]
            tools: Vec<Tool<'a>>,
        }

        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Tool<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(borrow, default)]
            output_schema: Option<&'a RawValue>,
        }

        if self.check == OutputCheck::Off {
            return;
        }
        let Ok(Page { tools }) = page.decode::<Page<'_>>() else {
            return; // Whoever decodes the page for its caller will complain.
        };
        let mut known = self.lock();
        for tool in tools {
            known.learn(&tool.name, tool.output_schema.map(RawValue::get));
        }
    }

    /// Forgets what the tools promised: they changed.
    pub(super) fn forget(&self) {
        *self.lock() = Known::default();
    }

    /// Looks whether the result of a call keeps its tool's promise.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub(super) fn look(&self, params: &Json, result: &Json) -> Result<Looked> {
        // Most results have nothing to check, and that shows without decoding anything.
        let is_structured = result.as_str().contains(r#""structuredContent""#);
        if self.check == OutputCheck::Off || (!is_structured && self.lock().tools.is_empty()) {
            return Ok(Looked::Fine);
        }
        let Ok(Called { name }) = params.decode::<Called<'_>>() else {
            return Ok(Looked::Fine);
        };
        let known = self.lock().tools.get(&*name).cloned();
        match known {
            Some(Some(promise)) => promise.is_kept_by(&name, result).map(|()| Looked::Fine),
            None if is_structured => Ok(self.unlisted()),
            Some(None) | None => Ok(Looked::Fine),
        }
    }

    /// Whether it would help to list the tools; says so once.
    fn unlisted(&self) -> Looked {
        let mut known = self.lock();
        if self.check == OutputCheck::ListOnce && !known.was_listed {
            known.was_listed = true;
            Looked::Unlisted
        } else {
            Looked::Fine
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // No code that could panic runs under this lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Takes note of a tool and its schema, if there is room.
    fn learn(&mut self, name: &str, schema: Option<&str>) {
        let old = self.tools.get(name);
        let is_known = old.is_some_and(|old| {
            let old = old.as_ref().map(|promise| promise.text.as_str());
            old == schema
        });
        if is_known {
            return;
        }
        let size = |schema: Option<&str>| TOOL + name.len() + schema.map_or(0, str::len);
        if let Some(old) = self.tools.remove(name) {
            self.bytes -= size(old.as_ref().map(|promise| promise.text.as_str()));
        }
        if self.bytes + size(schema) > MAX_BYTES {
            tracing::warn!(
                tool = name,
                "output schemas exceed the limit of {MAX_BYTES} bytes; this one is not remembered"
            );
            return;
        }
        self.bytes += size(schema);
        // A copy: a slice of the page would keep the whole page.
        let promise = schema.and_then(|schema| Json::parse(schema.to_owned()).ok());
        let promise = promise.map(|text| Arc::new(Promise::new(text)));
        self.tools.insert(name.to_owned(), promise);
    }
}

impl Promise {
    fn new(text: Json) -> Self {
        let schema = std::sync::OnceLock::new();
        Self { text, schema }
    }

    fn is_kept_by(&self, tool: &str, result: &Json) -> Result<()> {
        let Ok(output) = result.decode::<Output<'_>>() else {
            return Ok(()); // It is no tool's result at all, which shows when it is decoded.
        };
        if output.is_error == Some(true) {
            return Ok(());
        }
        let Some(structured) = output.structured_content else {
            return Err(Error::protocol(format!(
                "the tool `{tool}` promises structured output and gave none"
            )));
        };
        let schema = self.schema.get_or_init(|| Schema::read(&self.text));
        let schema = schema.as_ref().map_err(|why| {
            Error::protocol(format!(
                "the output schema of the tool `{tool}` cannot be used: {why}"
            ))
        })?;
        schema.check(structured.get()).map_err(|why| {
            Error::protocol(format!(
                "the structured output of the tool `{tool}` is not what its schema promises: {why}"
            ))
        })
    }
}

/// The params of `tools/call`, as far as they matter here.
#[derive(Deserialize)]
struct Called<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

/// A tool's result, as far as it matters here. The text `null` is structured output too.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Output<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: Option<bool>,
}

/// How many bytes of names and schemas are remembered: 16 MiB.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// What a tool takes apart from its name and its schema.
const TOOL: usize = 128;

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
    fn schemas_are_remembered_up_to_their_limit_and_again_when_they_were_forgotten() {
        let outputs = Outputs::new(OutputCheck::Listed);
        let known = |outputs: &Outputs| outputs.lock().tools.len();

        for tool in 0..20 {
            outputs.learn(&page(tool, 1024 * 1024));
        }
        assert_eq!(known(&outputs), 15);
        // The same again costs nothing, and a shorter one gives some room back.
        outputs.learn(&page(0, 1024 * 1024));
        outputs.learn(&page(0, 10));
        outputs.learn(&page(20, 1024 * 1024));
        assert_eq!(known(&outputs), 16);

        outputs.forget();
        outputs.learn(&page(20, 1024 * 1024));
        assert_eq!(known(&outputs), 1);
    }
}
