//! [`ToolCatalog`]: the tool arguments that `Mcp-Param-*` headers mirror, as the upstream last listed them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline::Json;
use bowline::exchange::Caller;
use bowline::http::server::MethodCatalog;
use bowline_core::http::headers::ParamHeaders;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The tools of an upstream whose arguments clients mirror in headers, learned from the lists that clients get. Clones
/// are the same catalog.
///
/// The headers of a tool that no client has listed are not checked: the bridge does not know its schema yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolCatalog {
    tools: Arc<Mutex<KnownTools>>,
}

#[derive(Debug, Default)]
struct KnownTools {
    by_name: BTreeMap<String, KnownTool>,
    /// What they take, in all.
    bytes: usize,
}

#[derive(Debug)]
struct KnownTool {
    /// The name of the principal that the tool was listed for.
    principal: Option<String>,
    /// `None` if principals see different schemas: which one applies is not known before the request is authorized.
    headers: Option<Arc<ParamHeaders>>,
    /// What it takes, at most: the headers name members of the schema.
    bytes: usize,
}

impl ToolCatalog {
    /// Learns the tools of a page of `tools/list`.
    pub(crate) fn learn(&self, principal: Option<&str>, page: &Json) {
        // Most servers mirror no arguments, and their lists need not be decoded.
        if !page.as_str().contains("x-mcp-header") && self.lock().by_name.is_empty() {
            return;
        }
        let Ok(ToolPage { tools }) = page.decode::<ToolPage<'_>>() else {
            return;
        };
        for tool in tools {
            let schema = tool.input_schema.map(|schema| page.part(schema));
            let bytes = schema.as_ref().map_or(0, |schema| schema.as_bytes().len());
            // Clients do not call a tool with an invalid annotation over HTTP.
            let headers = schema.and_then(|schema| ParamHeaders::read(&schema).ok());
            let headers = headers.filter(|headers| !headers.is_empty());
            self.lock().learn(principal, &tool.name, headers, bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, KnownTools> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownTools {
    /// `bytes` is the length of the schema that the headers are from.
    fn learn(
        &mut self,
        principal: Option<&str>,
        name: &str,
        headers: Option<ParamHeaders>,
        bytes: usize,
    ) {
        let Some(known) = self.by_name.get_mut(name) else {
            let bytes = name.len() + bytes;
            if let Some(headers) = headers
                && self.bytes + bytes <= MAX_BYTES
            {
                let known = KnownTool {
                    principal: principal.map(str::to_owned),
                    headers: Some(Arc::new(headers)),
                    bytes,
                };
                self.bytes += bytes;
                self.by_name.insert(name.to_owned(), known);
            }
            return;
        };
        if known.principal.as_deref() == principal {
            known.headers = headers.map(Arc::new);
        } else if known.headers.as_deref() != headers.as_ref() {
            known.headers = None;
        } else {
            return;
        }
        let bytes = name.len() + known.headers.as_ref().map_or(0, |_| bytes);
        self.bytes = self.bytes - known.bytes + bytes;
        known.bytes = bytes;
        if self.bytes > MAX_BYTES {
            known.headers = None;
            self.bytes = self.bytes - known.bytes + name.len();
            known.bytes = name.len();
        }
    }
}

impl MethodCatalog for ToolCatalog {
    fn has_method(&self, _: &str) -> bool {
        true
    }

    fn param_headers(&self, tool: &str, _: &Caller) -> Option<Arc<ParamHeaders>> {
        self.lock().by_name.get(tool)?.headers.clone()
    }
}

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
    input_schema: Option<&'a RawValue>,
}

/// What the tools with mirrored arguments may take. The headers of further ones are not checked.
const MAX_BYTES: usize = 2 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use bowline::exchange::Dialect;
    use serde_json::json;

    use super::*;

    fn page(schemas: &[(&str, Option<&str>)]) -> Json {
        let tools = schemas.iter().map(|(name, header)| {
            let mut region = json!({"type": "string"});
            if let Some(header) = header {
                region["x-mcp-header"] = json!(header);
            }
            json!({"name": name, "inputSchema": {"type": "object", "properties": {"region": region}}})
        });
        Json::from(json!({"tools": tools.collect::<Vec<_>>()}))
    }

    fn header(catalog: &ToolCatalog, tool: &str) -> Option<String> {
        let headers = catalog.param_headers(tool, &Caller::new(Dialect::LATEST))?;
        headers.names().next().map(ToString::to_string)
    }

    #[test]
    fn a_tool_is_known_as_it_was_last_listed() {
        let catalog = ToolCatalog::default();

        catalog.learn(None, &page(&[("a", Some("Region")), ("b", None)]));
        assert_eq!(header(&catalog, "a").as_deref(), Some("mcp-param-region"));
        assert_eq!(header(&catalog, "b"), None);

        catalog.learn(None, &page(&[("a", Some("Place"))]));
        assert_eq!(header(&catalog, "a").as_deref(), Some("mcp-param-place"));
        catalog.learn(None, &page(&[("a", None)]));
        assert_eq!(header(&catalog, "a"), None);
    }

    #[test]
    fn a_tool_that_principals_see_differently_is_not_checked() {
        let catalog = ToolCatalog::default();

        catalog.learn(
            Some("ada"),
            &page(&[("a", Some("Region")), ("b", Some("Region"))]),
        );
        catalog.learn(
            Some("eve"),
            &page(&[("a", Some("Place")), ("b", Some("Region"))]),
        );

        assert_eq!(header(&catalog, "a"), None);
        assert_eq!(header(&catalog, "b").as_deref(), Some("mcp-param-region"));
    }

    #[test]
    fn long_schemas_and_names_are_remembered_up_to_a_limit() {
        let catalog = ToolCatalog::default();
        let long = "x".repeat(MAX_BYTES / 3);
        let learn = |tool: &str, property: &str| {
            let region = json!({"type": "string", "x-mcp-header": "Region"});
            let schema = json!({"type": "object", "properties": {property: region}});
            let page = json!({"tools": [{"name": tool, "inputSchema": schema}]});
            catalog.learn(None, &Json::from(page));
        };

        for tool in ["a", "b", "c", "d"] {
            learn(tool, &long);
        }
        learn(&long, "region");
        let known = ["a", "b", "c", "d", &long].map(|tool| header(&catalog, tool).is_some());
        assert_eq!(known, [true, true, false, false, false]);

        learn("a", "region");
        learn("c", &long);
        learn("a", &long);
        assert_eq!(header(&catalog, "a"), None, "it is too long now");
        assert!(header(&catalog, "c").is_some());
        let tools = catalog.lock();
        let bytes: usize = tools.by_name.values().map(|tool| tool.bytes).sum();
        assert_eq!(tools.bytes, bytes);
        assert!(bytes <= MAX_BYTES);
    }
}
