//! `MirroredTools`, which stores the tool arguments that are mirrored in headers (`x-mcp-header`), from `tools/list`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_core::http::headers::ParamHeaders;
use bowline_core::json::Object;
use bowline_core::shortened;
use bowline_types::{Json, ListToolsResult};

use crate::sync::Mutex;

/// The tools with mirrored arguments, bounded in bytes because the server decides how many it lists.
#[derive(Default)]
pub(super) struct MirroredTools {
    table: Mutex<ToolHeaderTable>,
}

#[derive(Default)]
struct ToolHeaderTable {
    by_tool: BTreeMap<String, ToolHeaders>,
    bytes: usize,
}

struct ToolHeaders {
    headers: Arc<ParamHeaders>,
    /// An upper bound of its memory.
    bytes: usize,
}

impl MirroredTools {
    pub(super) fn is_empty(&self) -> bool {
        self.table.lock().by_tool.is_empty()
    }

    /// Returns the mirrored headers of a tool, if any are known.
    pub(super) fn find(&self, tool: &str) -> Option<Arc<ParamHeaders>> {
        let table = self.table.lock();
        table.by_tool.get(tool).map(|stored| stored.headers.clone())
    }

    /// Stores the mirrored headers of the tools in a `tools/list` result. Returns the result without the tools whose
    /// `x-mcp-header` annotations are invalid.
    pub(super) fn update(&self, result: Json) -> Json {
        let Ok(mut list) = result.decode::<ListToolsResult>() else {
            return result;
        };
        let before = list.tools.len();
        let mut updates = Vec::with_capacity(before);
        list.tools.retain(|tool| {
            let read = ParamHeaders::read(&tool.input_schema);
            if let Err(bad) = &read {
                let (name, bad) = (shortened(&tool.name), shortened(bad));
                tracing::warn!(tool = %name, %bad, "dropped a tool with an invalid `x-mcp-header` from the list");
            }
            let is_good = read.is_ok();
            let headers = read.ok().filter(|headers| !headers.is_empty());
            let headers = headers.map(|headers| ToolHeaders {
                headers: Arc::new(headers),
                bytes: PER_TOOL + tool.name.len() + tool.input_schema.as_bytes().len(),
            });
            updates.push((tool.name.clone(), headers));
            is_good
        });
        self.store(updates);
        if list.tools.len() == before {
            return result;
        }
        let rewritten = Object::read(&result).ok().and_then(|mut object| {
            object.set("tools", Json::encode(&list.tools).ok()?);
            Some(object.to_json())
        });
        rewritten.unwrap_or(result)
    }

    fn store(&self, updates: Vec<(String, Option<ToolHeaders>)>) {
        let mut unknown = 0_usize;
        let mut table = self.table.lock();
        for (tool, headers) in updates {
            table.forget(&tool);
            let is_known = headers.is_none_or(|headers| table.insert(tool, headers));
            unknown += usize::from(!is_known);
        }
        drop(table);
        if unknown > 0 {
            tracing::warn!(
                unknown,
                "too many tools with `x-mcp-header`; calls of the rest omit these headers"
            );
        }
    }
}

impl ToolHeaderTable {
    fn forget(&mut self, tool: &str) {
        if let Some(headers) = self.by_tool.remove(tool) {
            self.bytes -= headers.bytes;
        }
    }

    /// Stores a new tool. Returns `false` if the limit is reached.
    fn insert(&mut self, tool: String, headers: ToolHeaders) -> bool {
        let bytes = self.bytes + headers.bytes;
        let has_room = bytes <= MAX_BYTES;
        if has_room {
            self.bytes = bytes;
            self.by_tool.insert(tool, headers);
        }
        has_room
    }
}

/// Maximum size of the names and schemas of all stored tools together.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Memory of a tool besides its name and schema.
const PER_TOOL: usize = 256;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A `tools/list` result with these names; each tool has one argument, mirrored in `header` if there is one.
    fn list(names: impl Iterator<Item = String>, header: Option<&str>) -> Json {
        let mut argument = json!({"type": "string"});
        if let Some(header) = header {
            argument["x-mcp-header"] = header.into();
        }
        let schema = json!({"type": "object", "properties": {"a": argument}});
        let tools: Vec<_> = names
            .map(|name| json!({"name": name, "inputSchema": schema}))
            .collect();
        json!({"resultType": "complete", "tools": tools}).into()
    }

    fn numbered(numbers: std::ops::Range<usize>) -> impl Iterator<Item = String> {
        numbers.map(|number| format!("tool {number}"))
    }

    #[test]
    fn the_stored_tools_are_bounded() {
        let tools = MirroredTools::default();

        for page in 0..40 {
            tools.update(list(numbered(page * 1000..(page + 1) * 1000), Some("A")));
        }

        let known = tools.table.lock().by_tool.len();
        assert!((10_000..40_000).contains(&known), "{known}");
        assert!(tools.table.lock().bytes <= MAX_BYTES);
        assert!(tools.find("tool 0").is_some());
        assert!(tools.find("tool 39999").is_none());
    }

    #[test]
    fn a_tool_listed_again_replaces_the_first() {
        let tools = MirroredTools::default();
        tools.update(list(numbered(0..2), Some("A")));
        let bytes = tools.table.lock().bytes;

        tools.update(list(numbered(0..2), Some("B")));
        assert_eq!(tools.table.lock().bytes, bytes);

        tools.update(list(numbered(0..1), None));
        tools.update(list(numbered(1..2), Some("not a token")));
        assert!(tools.is_empty());
        assert_eq!(tools.table.lock().bytes, 0);
    }
}
