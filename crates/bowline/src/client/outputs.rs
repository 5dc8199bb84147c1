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
    /// Whether the tools were listed for the sake of checking.
    was_listed: bool,
}

/// A schema as it came, and ready for use once it was needed.
struct Promise {
    text: Json,
    schema: std::sync::OnceLock<Option<Schema>>,
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
            let text = tool.output_schema.map(|schema| page.part(schema));
            let old = known.tools.get(&*tool.name).and_then(Option::as_ref);
            if old.map(|promise| &promise.text) != text.as_ref()
                || !known.tools.contains_key(&*tool.name)
            {
                let promise = text.map(|text| Arc::new(Promise::new(text)));
                known.tools.insert(tool.name.into_owned(), promise);
            }
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
        let Some(schema) = schema else { return Ok(()) };
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

fn present<'de, D: serde::Deserializer<'de>>(
    member: D,
) -> std::result::Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(member).map(Some)
}
