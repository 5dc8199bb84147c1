//! [`TaskIds`]: the ids of tasks of several servers, as clients see them.

use bowline::Json;
use bowline::exchange::Notification;
use bowline_core::json::Object;
use bowline_types::{SubscriptionFilter, meta_key};
use serde_json::Value;

use crate::many::Names;

/// Converts the ids of tasks: a client sees the prefix of the server, its separator, and the id of the server.
///
/// The server without a prefix has the separator alone, so that its ids cannot begin like those of another server.
/// The ids of a server that is alone stay as they are.
#[derive(Clone, Copy)]
pub(super) struct TaskIds<'a> {
    names: &'a Names,
    separator: &'a str,
}

impl<'a> TaskIds<'a> {
    pub(super) fn new(names: &'a Names, separator: &'a str) -> Self {
        Self { names, separator }
    }

    /// Returns the id that clients see.
    pub(super) fn outer(&self, server: &str, id: &str) -> String {
        let prefix = self.names.prefix_of(server).unwrap_or_default();
        match prefix.is_empty() && !self.is_alone() {
            true => format!("{}{id}", self.separator),
            false => format!("{prefix}{id}"),
        }
    }

    /// Returns the server of a task, and its id there.
    pub(super) fn split<'i>(&self, outer: &'i str) -> Option<(&'a str, &'i str)> {
        let (server, id) = self.names.split(outer)?;
        let has_prefix = self.names.prefix_of(server) != Some("");
        match has_prefix || self.is_alone() {
            true => Some((server, id)),
            false => Some((server, id.strip_prefix(self.separator)?)),
        }
    }

    /// Converts the ids in a result.
    pub(super) fn convert_result(&self, server: &str, method: &str, result: Json) -> Json {
        if self.is_unchanged() || !result.as_str().contains("\"taskId\"") {
            return result;
        }
        let Ok(mut object) = Object::read(&result) else {
            return result;
        };
        let is_task = method.starts_with("tasks/") || text(&object, "resultType") == "task";
        if is_task {
            self.convert_member(server, &mut object);
        }
        if object.member("content").is_none() {
            self.convert_nested(server, &mut object, &["task"]);
        }
        self.convert_nested(server, &mut object, &["_meta", meta_key::RELATED_TASK]);
        if let Some(Ok(tasks)) = object.member("tasks").map(Json::decode::<Vec<Value>>) {
            let tasks = tasks.into_iter().map(|mut task| {
                if let Some(Value::String(id)) = task.get_mut("taskId") {
                    *id = self.outer(server, id);
                }
                task
            });
            object.set("tasks", Value::from_iter(tasks).into());
        }
        object.to_json()
    }

    /// Converts the ids in a notification.
    pub(super) fn convert_notification(
        &self,
        server: &str,
        notification: Notification,
    ) -> Notification {
        let has_ids = |params: &&Json| {
            let text = params.as_str();
            text.contains("\"taskId\"") || text.contains("\"taskIds\"")
        };
        let params = notification.params.as_ref().filter(has_ids);
        let Some(Ok(mut object)) = params.map(Object::read) else {
            return notification;
        };
        if self.is_unchanged() {
            return notification;
        }
        if notification.method.starts_with("notifications/tasks") {
            self.convert_member(server, &mut object);
        }
        self.convert_nested(server, &mut object, &["_meta", meta_key::RELATED_TASK]);
        let filter = object.member("notifications").map(Json::decode);
        if let Some(Ok(mut filter)) = filter {
            edit_ids(&mut filter, |id| Some(self.outer(server, id)));
            if let Ok(filter) = Json::encode(&filter) {
                object.set("notifications", filter);
            }
        }
        let params = Some(object.to_json());
        Notification::new(notification.method.clone(), params)
    }

    /// Keeps the ids of a filter that belong to a server, as clients see them.
    pub(super) fn keep_own(&self, server: &str, filter: &mut SubscriptionFilter) {
        edit_ids(filter, |id| {
            let (owner, _) = self.split(id)?;
            (owner == server).then(|| id.to_owned())
        });
    }

    /// Converts the ids of a filter to those of a server.
    pub(super) fn to_inner(self, filter: &mut SubscriptionFilter) {
        edit_ids(filter, |id| Some(self.split(id)?.1.to_owned()));
    }

    fn convert_member(&self, server: &str, object: &mut Object<'_>) {
        let id = text(object, "taskId");
        if !id.is_empty() {
            object.set("taskId", Value::from(self.outer(server, &id)).into());
        }
    }

    /// Converts the id in an object inside of an object.
    fn convert_nested(&self, server: &str, object: &mut Object<'_>, path: &[&'static str]) {
        let Some((first, rest)) = path.split_first() else {
            return self.convert_member(server, object);
        };
        let Some(inner) = object.member(first).cloned() else {
            return;
        };
        if let Ok(mut members) = Object::read(&inner) {
            self.convert_nested(server, &mut members, rest);
            object.set(*first, members.to_json());
        }
    }

    fn is_unchanged(&self) -> bool {
        self.is_alone()
            && self
                .names
                .servers()
                .all(|it| self.names.prefix_of(it) == Some(""))
    }

    fn is_alone(&self) -> bool {
        self.names.servers().count() == 1
    }
}

/// Edits the ids of a filter. The member is removed if none is left.
fn edit_ids(filter: &mut SubscriptionFilter, edit: impl Fn(&str) -> Option<String>) {
    let Some(Value::Array(ids)) = filter.other.get_mut(FILTER_MEMBER) else {
        return;
    };
    let edited = ids.iter().filter_map(|id| edit(id.as_str()?));
    *ids = edited.map(Value::from).collect();
    if ids.is_empty() {
        filter.other.remove(FILTER_MEMBER);
    }
}

fn text(object: &Object<'_>, member: &str) -> String {
    let text = object.member(member).and_then(|it| it.decode().ok());
    text.unwrap_or_default()
}

/// The member of a subscription filter with the ids of tasks.
const FILTER_MEMBER: &str = "taskIds";

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new("__", [("a", None), ("b", Some("")), ("c", None)]).unwrap()
    }

    #[test]
    fn an_id_leads_back_to_its_server() {
        let names = names();
        let ids = TaskIds::new(&names, "__");

        for (server, id, outer) in [
            ("a", "7", "a__7"),
            ("b", "a__7", "__a__7"),
            ("b", "x", "__x"),
        ] {
            assert_eq!(ids.outer(server, id), outer);
            assert_eq!(ids.split(outer), Some((server, id)));
        }
        assert_eq!(ids.split("7"), None);
    }

    #[test]
    fn ids_are_converted_wherever_a_result_has_them_and_nowhere_else() {
        let names = names();
        let ids = TaskIds::new(&names, "__");
        let convert = |method, result| {
            let result = ids.convert_result("a", method, Json::from_static(result));
            result.as_str().to_owned()
        };

        let created = convert(
            "tools/call",
            r#"{"resultType":"task","taskId":"7","x":1.0}"#,
        );
        assert_eq!(created, r#"{"resultType":"task","taskId":"a__7","x":1.0}"#);
        let legacy = convert("tools/call", r#"{"task":{"taskId":"7"}}"#);
        assert_eq!(legacy, r#"{"task":{"taskId":"a__7"}}"#);
        let got = convert("tasks/get", r#"{"taskId":"7","result":{"taskId":"8"}}"#);
        assert_eq!(got, r#"{"taskId":"a__7","result":{"taskId":"8"}}"#);
        let related =
            r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"7"}}}"#;
        assert!(convert("tasks/result", related).contains(r#"{"taskId":"a__7"}"#));
        let listed = convert("tasks/list", r#"{"tasks":[{"taskId":"7"}]}"#);
        assert_eq!(listed, r#"{"tasks":[{"taskId":"a__7"}]}"#);
        let output = r#"{"content":[],"structuredContent":{"taskId":"7"},"task":{"taskId":"7"}}"#;
        assert_eq!(convert("tools/call", output), output);
    }

    #[test]
    fn a_filter_is_split_between_servers() {
        let names = names();
        let ids = TaskIds::new(&names, "__");
        let wanted = Json::from_static(r#"{"taskIds":["a__1","__2","c__3","a__4","5"]}"#);
        let of = |server| {
            let mut filter: SubscriptionFilter = wanted.decode().unwrap();
            ids.keep_own(server, &mut filter);
            ids.to_inner(&mut filter);
            filter.other.get(FILTER_MEMBER).cloned()
        };

        assert_eq!(of("a"), Some(serde_json::json!(["1", "4"])));
        assert_eq!(of("b"), Some(serde_json::json!(["2"])));
        assert_eq!(of("d"), None);
    }
}
