//! [`KnownTools`], the tools in the `tools/list` results of a server: their output schemas, and their arguments that
//! HTTP requests mirror in headers (`x-mcp-header`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::Request;
use bowline_core::http::headers::ParamHeaders;
use bowline_core::json::{Object, Params};
use bowline_core::shortened;
use bowline_types::{CallToolRequest, Json, Method};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::output_validation::OutputSchema;
use super::{Client, OutputValidation};
use crate::Result;
use crate::sync::Mutex;

/// The known tools of a server, bounded in bytes because the server decides how many it lists.
pub(super) struct KnownTools {
    output_validation: OutputValidation,
    table: Mutex<ToolTable>,
    /// Held by the call that [lists the tools](Client::relist_tools).
    listing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct ToolTable {
    tools: BTreeMap<String, KnownTool>,
    /// The size of `tools`.
    bytes: usize,
    /// The number of `tools` with mirrored arguments.
    mirrored: usize,
    /// Whether `tools` are from before the last change. Their headers are still sent: a server ignores a header that it
    /// does not expect, and rejects a call that lacks one.
    is_outdated: bool,
    /// The number of changes.
    changes: u64,
    /// How often [`Client::relist_tools`] has tried to list the tools since the last change. A failed attempt counts:
    /// otherwise every call of a server whose list fails would list again.
    listings: u64,
}

struct KnownTool {
    output: Option<Arc<OutputSchema>>,
    param_headers: Option<Arc<ParamHeaders>>,
    bytes: usize,
}

/// Whether requests mirror tool arguments in headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentHeaders {
    Sent,
    NotSent,
}

/// Where a `tools/list` page comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageSource {
    Server,
    /// The cache, so that its invalid tools were logged before.
    Cache,
}

/// The outcome of [`KnownTools::validate`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ValidationStatus {
    /// The result is valid, or there is no schema to validate it against.
    Valid,
    /// The tool is unknown; list the tools and validate again.
    UnknownTool,
}

impl KnownTools {
    pub(super) fn new(output_validation: OutputValidation) -> Self {
        Self {
            output_validation,
            table: Mutex::default(),
            listing: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the number of changes so far, for [`store`](Self::store).
    pub(super) fn changes(&self) -> u64 {
        self.table.lock().changes
    }

    /// Stores the tools of a `tools/list` page, unless they have changed since it was requested: `requested_at` is the
    /// number of [`changes`](Self::changes) then. If headers are sent, returns the page without the tools whose
    /// `x-mcp-header` annotations are invalid.
    pub(super) fn store(
        &self,
        page: &Json,
        argument_headers: ArgumentHeaders,
        requested_at: u64,
        source: PageSource,
    ) -> Json {
        let validates = self.output_validation != OutputValidation::Off;
        let sends_headers = argument_headers == ArgumentHeaders::Sent;
        if !validates && !sends_headers {
            return page.clone();
        }
        let Ok(ToolPage { mut tools }) = page.decode::<ToolPage<ListedTool<'_>>>() else {
            return page.clone(); // The error is reported when the page is decoded for the caller.
        };
        for tool in &mut tools {
            tool.output_schema = tool.output_schema.filter(|_| validates);
            if sends_headers {
                tool.read_headers(page, source);
            }
        }
        let mut table = self.table.lock();
        let rejected = match table.changes == requested_at {
            true => table.store_page(page, &tools),
            false => 0,
        };
        drop(table);
        if rejected > 0 {
            tracing::warn!(
                rejected,
                "tools exceed the limit of {MAX_BYTES} bytes; ignored the schemas of the rest"
            );
        }
        match tools.iter().any(|tool| tool.is_invalid) {
            true => without_invalid(page, &tools).unwrap_or_else(|| page.clone()),
            false => page.clone(),
        }
    }

    /// Waits for the turn to list the tools, which lasts until the guard is dropped.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future gives up the place in the queue.
    #[cfg_attr(
        not(feature = "http-client"),
        allow(dead_code, reason = "headers are sent over HTTP only")
    )]
    pub(super) async fn listing_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.listing.lock().await
    }

    /// Marks the tools as outdated, because the list changed.
    pub(super) fn forget(&self) {
        let mut table = self.table.lock();
        table.is_outdated = true;
        table.changes += 1;
        table.listings = 0;
    }

    /// Returns the mirrored arguments of the tool that `request` calls, if there are any.
    #[allow(dead_code, reason = "called with the feature `http-client` only")]
    pub(super) fn param_headers(&self, request: &Request) -> Option<Arc<ParamHeaders>> {
        if request.method != CallToolRequest::NAME {
            return None;
        }
        let table = self.table.lock();
        if table.mirrored == 0 {
            return None; // without decoding
        }
        let name = called_tool(&request.params)?;
        table.tools.get(&*name.text().ok()?)?.param_headers.clone()
    }

    /// Validates the result of a `tools/call` request.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`](crate::Error::Protocol) if it does not match the output schema of the tool.
    pub(super) fn validate(&self, params: &Params, result: &Json) -> Result<ValidationStatus> {
        // Without decoding: most results have no structured content, and no tool has a known schema.
        let is_structured = result.as_str().contains(r#""structuredContent""#);
        if self.output_validation == OutputValidation::Off
            || (!is_structured && self.table.lock().tools.is_empty())
        {
            return Ok(ValidationStatus::Valid);
        }
        let name = called_tool(params);
        let Some(Ok(name)) = name.as_ref().map(Json::text) else {
            return Ok(ValidationStatus::Valid);
        };
        let table = self.table.lock();
        let schema = match table.tools.get(&*name) {
            Some(tool) if !table.is_outdated => tool.output.clone(),
            Some(_) | None => {
                let lists = self.output_validation == OutputValidation::ListOnce;
                if is_structured && lists && table.listings == 0 {
                    return Ok(ValidationStatus::UnknownTool);
                }
                None
            }
        };
        drop(table);
        if let Some(schema) = schema {
            schema.check_result(&name, result)?;
        }
        Ok(ValidationStatus::Valid)
    }
}

impl Client {
    /// Lists all tools within `limit`, which makes them known; once for all calls that wait for it. Returns how much of
    /// the limit it took.
    ///
    /// # Cancel safety
    ///
    /// Safe: if another call waits for the list, it sends a new request.
    pub(super) async fn relist_tools(self, limit: Duration) -> Duration {
        let known = &self.inner.notifications.tools;
        let (before, began) = (known.table.lock().listings, Instant::now());
        // Not longer: the call that has the turn may not be polled, for example because this one is awaited in its
        // `select!`. Then this call continues with the tools that are known.
        let turn = timeout(limit.min(MAX_TURN_WAIT), known.listing.lock()).await;
        let waited = began.elapsed();
        let (listings, changes) = {
            let table = known.table.lock();
            (table.listings, table.changes)
        };
        if turn.is_err() || listings > before {
            return waited; // Another call lists them, or has listed them while this one waited for its turn.
        }
        let list = self.list_tools().refresh().idle_timeout(limit);
        let mut list = list.timeout(limit.saturating_sub(waited)).stream();
        if let Err(error) = list.collect().await {
            tracing::warn!(%error, "failed to list the tools, to validate output or to correct headers");
        }
        let mut table = known.table.lock();
        // The pages before a change are outdated, so the list does not count.
        table.listings += u64::from(table.changes == changes);
        waited + list.time_spent()
    }
}

impl ToolTable {
    /// Stores the tools of a page. Returns how many were rejected because of the limit.
    fn store_page(&mut self, page: &Json, tools: &[ListedTool<'_>]) -> usize {
        if std::mem::take(&mut self.is_outdated) {
            self.tools.clear();
            (self.bytes, self.mirrored) = (0, 0);
        }
        tools.iter().filter(|tool| !self.store(page, tool)).count()
    }

    /// Stores a tool, replacing an earlier one. Returns `false` if the limit is reached.
    fn store(&mut self, page: &Json, tool: &ListedTool<'_>) -> bool {
        let output_text = tool.output_schema.map(RawValue::get);
        let is_unchanged = self.tools.get(&*tool.name).is_some_and(|old| {
            let old_text = old.output.as_ref().map(|old| old.text());
            old_text == output_text && old.param_headers == tool.param_headers
        });
        if is_unchanged && !tool.is_invalid {
            return true;
        }
        if let Some(old) = self.tools.remove(&*tool.name) {
            self.bytes -= old.bytes;
            self.mirrored -= usize::from(old.param_headers.is_some());
        }
        let bytes = tool.size();
        if tool.is_invalid || self.bytes + bytes > MAX_BYTES {
            return tool.is_invalid;
        }
        self.bytes += bytes;
        self.mirrored += usize::from(tool.param_headers.is_some());
        let output = tool.output_schema.map(|schema| {
            // A copy: a slice of the page would keep the whole page in memory.
            Arc::new(OutputSchema::new(page.part(schema).to_unshared()))
        });
        let known = KnownTool {
            output,
            param_headers: tool.param_headers.clone(),
            bytes,
        };
        self.tools.insert(tool.name.to_string(), known);
        true
    }
}

#[derive(Deserialize)]
struct ToolPage<T> {
    tools: Vec<T>,
}

/// A tool in a page, reduced to what is needed here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    input_schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output_schema: Option<&'a RawValue>,
    /// The annotations of the input schema, once they are read.
    #[serde(skip)]
    param_headers: Option<Arc<ParamHeaders>>,
    /// Whether these annotations are invalid.
    #[serde(skip)]
    is_invalid: bool,
}

impl ListedTool<'_> {
    fn read_headers(&mut self, page: &Json, source: PageSource) {
        let schema = self.input_schema.map(|schema| page.part(schema));
        match schema.as_ref().map(ParamHeaders::read).transpose() {
            Ok(headers) => {
                let headers = headers.filter(|headers| !headers.is_empty());
                self.param_headers = headers.map(Arc::new);
            }
            Err(bad) => {
                self.is_invalid = true;
                if source == PageSource::Server {
                    let (name, bad) = (shortened(&self.name), shortened(bad));
                    tracing::warn!(tool = %name, %bad, "dropped a tool with an invalid `x-mcp-header` from the list");
                }
            }
        }
    }

    /// Returns an upper bound of the memory of the stored tool.
    fn size(&self) -> usize {
        let length = |schema: &RawValue| schema.get().len();
        let input = self.input_schema.filter(|_| self.param_headers.is_some());
        ENTRY_OVERHEAD
            + self.name.len()
            + self.output_schema.map_or(0, length)
            + input.map_or(0, length)
    }
}

/// Returns the page without the invalid ones of its `tools`.
fn without_invalid(page: &Json, tools: &[ListedTool<'_>]) -> Option<Json> {
    let ToolPage::<&RawValue> { tools: texts } = page.decode().ok()?;
    let texts = texts.into_iter().zip(tools);
    let valid = texts.filter_map(|(text, tool)| (!tool.is_invalid).then_some(text));
    let mut object = Object::read(page).ok()?;
    object.set("tools", Json::encode(&valid.collect::<Vec<_>>()).ok()?);
    Some(object.to_json())
}

/// Returns the name of the tool in the params of `tools/call`, as JSON.
fn called_tool(params: &Params) -> Option<Json> {
    params.member("name").ok().flatten()
}

/// How long a call waits for the list of another one.
const MAX_TURN_WAIT: Duration = Duration::from_secs(1);
/// The maximum size of all tools: 16 MiB.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The size of a tool without its name and schemas, in bytes.
const ENTRY_OVERHEAD: usize = 256;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn listed(pages: &[Json]) -> KnownTools {
        let tools = KnownTools::new(OutputValidation::ListOnce);
        for page in pages {
            store(&tools, page, 0);
        }
        tools
    }

    fn store(tools: &KnownTools, page: &Json, requested_at: u64) -> Json {
        tools.store(
            page,
            ArgumentHeaders::Sent,
            requested_at,
            PageSource::Server,
        )
    }

    fn page(tools: impl IntoIterator<Item = Value>) -> Json {
        json!({"tools": tools.into_iter().collect::<Vec<_>>()}).into()
    }

    fn with_output_schema(tool: usize, length: usize) -> Value {
        let schema = json!({"description": "x".repeat(length)});
        json!({"name": tool.to_string(), "inputSchema": {}, "outputSchema": schema})
    }

    /// A tool with one argument, which is mirrored in `header`.
    fn with_header(tool: usize, header: &str) -> Value {
        let argument = json!({"type": "string", "x-mcp-header": header});
        json!({"name": tool.to_string(), "inputSchema": {"properties": {"a": argument}}})
    }

    fn param_headers(tools: &KnownTools, tool: usize) -> Option<Arc<ParamHeaders>> {
        let caller = bowline_core::era::Caller::new(bowline_core::era::Dialect::LATEST);
        let params = json!({"name": tool.to_string()});
        let request = Request::new(CallToolRequest::NAME, Json::from(params), Arc::new(caller));
        tools.param_headers(&request)
    }

    fn validate(tools: &KnownTools, tool: usize) -> Result<ValidationStatus> {
        let params = Json::from(json!({"name": tool.to_string()}));
        let result = json!({"structuredContent": {}}).into();
        tools.validate(&params.into(), &result)
    }

    #[test]
    fn tools_are_stored_up_to_the_limit() {
        let long = |tool| page([with_output_schema(tool, 1024 * 1024)]);
        let tools = listed(&(0..20).map(long).collect::<Vec<_>>());
        let stored = || tools.table.lock().tools.len();
        assert_eq!(stored(), 15);

        // The same schema again takes no memory, and a shorter one frees some.
        store(&tools, &long(0), 0);
        store(&tools, &page([with_output_schema(0, 10)]), 0);
        store(&tools, &long(20), 0);
        assert_eq!(stored(), 16);

        let many = listed(&[page((0..60_000).map(|tool| with_header(tool, "A")))]);
        assert!(many.table.lock().bytes <= MAX_BYTES);
        assert!(param_headers(&many, 0).is_some());
        assert!(param_headers(&many, 59_999).is_none());
    }

    #[test]
    fn a_tool_listed_again_replaces_the_first() {
        let tools = listed(&[page([with_header(0, "A"), with_header(1, "A")])]);
        let bytes = tools.table.lock().bytes;

        store(&tools, &page([with_header(0, "B")]), 0);
        assert_eq!(tools.table.lock().bytes, bytes);
        let headers = param_headers(&tools, 0).unwrap();
        assert!(headers.names().eq(["mcp-param-b"]));

        let valid = store(
            &tools,
            &page([with_output_schema(0, 10), with_header(1, "not a token")]),
            0,
        );
        assert_eq!(valid, page([with_output_schema(0, 10)]));
        assert_eq!(tools.table.lock().mirrored, 0);
        assert_eq!(tools.table.lock().tools.len(), 1);
    }

    #[test]
    fn after_a_change_schemas_are_unknown_and_headers_known_until_the_next_list() {
        let tools = listed(&[page([with_output_schema(0, 10), with_header(1, "A")])]);
        assert_eq!(validate(&tools, 0).unwrap(), ValidationStatus::Valid);

        tools.forget();
        assert_eq!(validate(&tools, 0).unwrap(), ValidationStatus::UnknownTool);
        assert!(param_headers(&tools, 1).is_some());

        // Requested before the change.
        store(&tools, &page([with_output_schema(0, 10)]), 0);
        assert_eq!(validate(&tools, 0).unwrap(), ValidationStatus::UnknownTool);

        store(&tools, &page([with_output_schema(0, 10)]), 1);
        assert_eq!(validate(&tools, 0).unwrap(), ValidationStatus::Valid);
        assert!(param_headers(&tools, 1).is_none());
    }
}
