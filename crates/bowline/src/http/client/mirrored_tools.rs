//! Which arguments of a server's tools are mirrored in headers, as its lists of tools tell.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_core::http::headers::ParamHeaders;
use bowline_core::json::Object;
use bowline_core::shortened;
use bowline_types::{Json, ListToolsResult};

/// The tools that have such arguments, within a bound: a server decides how many it lists.
#[derive(Default)]
pub(super) struct MirroredTools {
    plans: Mutex<Plans>,
}

#[derive(Default)]
struct Plans {
    by_tool: BTreeMap<String, Plan>,
    bytes: usize,
}

struct Plan {
    headers: Arc<ParamHeaders>,
    /// What it takes up at most.
    bytes: usize,
}

impl MirroredTools {
    pub(super) fn is_empty(&self) -> bool {
        self.lock().by_tool.is_empty()
    }

    /// The headers of a tool, if it is known to have some.
    pub(super) fn find(&self, tool: &str) -> Option<Arc<ParamHeaders>> {
        let plans = self.lock();
        plans.by_tool.get(tool).map(|plan| plan.headers.clone())
    }

    /// Notes which arguments of the tools in a list have headers. Returns the list without the tools whose schemas break
    /// the rules.
    pub(super) fn learn(&self, result: Json) -> Json {
        let Ok(mut list) = result.decode::<ListToolsResult>() else {
            return result;
        };
        let before = list.tools.len();
        let mut learned = Vec::with_capacity(before);
        list.tools.retain(|tool| {
            let read = ParamHeaders::read(&tool.input_schema);
            if let Err(bad) = &read {
                let (name, bad) = (shortened(&tool.name), shortened(bad));
                tracing::warn!(tool = %name, %bad, "a tool was left out of the list");
            }
            let is_good = read.is_ok();
            let headers = read.ok().filter(|headers| !headers.is_empty());
            let plan = headers.map(|headers| Plan {
                headers: Arc::new(headers),
                bytes: PER_TOOL + tool.name.len() + tool.input_schema.as_bytes().len(),
            });
            learned.push((tool.name.clone(), plan));
            is_good
        });
        self.note(learned);
        if list.tools.len() == before {
            return result;
        }
        let rewritten = Object::read(&result).ok().and_then(|mut object| {
            object.set("tools", Json::encode(&list.tools).ok()?);
            Some(object.to_json())
        });
        rewritten.unwrap_or(result)
    }

    fn note(&self, learned: Vec<(String, Option<Plan>)>) {
        let mut unknown = 0_usize;
        let mut plans = self.lock();
        for (tool, plan) in learned {
            plans.forget(&tool);
            let is_known = plan.is_none_or(|plan| plans.insert(tool, plan));
            unknown += usize::from(!is_known);
        }
        drop(plans);
        if unknown > 0 {
            tracing::warn!(
                unknown,
                "too many tools have arguments in headers; calls of the others lack them"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Plans> {
        // No code that could panic runs under this lock.
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plans {
    fn forget(&mut self, tool: &str) {
        if let Some(plan) = self.by_tool.remove(tool) {
            self.bytes -= plan.bytes;
        }
    }

    /// Notes a tool that is not known. Whether there was room.
    fn insert(&mut self, tool: String, plan: Plan) -> bool {
        let bytes = self.bytes + plan.bytes;
        let has_room = bytes <= MAX_BYTES;
        if has_room {
            self.bytes = bytes;
            self.by_tool.insert(tool, plan);
        }
        has_room
    }
}

/// How long the names and the schemas of all known tools may be together.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// What a tool takes up besides its name and its schema.
const PER_TOOL: usize = 256;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A list of tools with such names, whose one argument has a header or has none.
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
    fn however_many_tools_a_server_lists_so_many_are_known() {
        let tools = MirroredTools::default();

        for page in 0..40 {
            tools.learn(list(numbered(page * 1000..(page + 1) * 1000), Some("A")));
        }

        let known = tools.lock().by_tool.len();
        assert!((10_000..40_000).contains(&known), "{known}");
        assert!(tools.lock().bytes <= MAX_BYTES);
        assert!(tools.find("tool 0").is_some());
        assert!(tools.find("tool 39999").is_none());
    }

    #[test]
    fn a_tool_that_is_listed_again_takes_the_place_of_the_first() {
        let tools = MirroredTools::default();
        tools.learn(list(numbered(0..2), Some("A")));
        let bytes = tools.lock().bytes;

        tools.learn(list(numbered(0..2), Some("B")));
        assert_eq!(tools.lock().bytes, bytes);

        tools.learn(list(numbered(0..1), None));
        tools.learn(list(numbered(1..2), Some("not a token")));
        assert!(tools.is_empty());
        assert_eq!(tools.lock().bytes, 0);
    }
}
