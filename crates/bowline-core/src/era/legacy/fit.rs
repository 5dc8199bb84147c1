//! What a legacy version has no words for is taken away, or said in words that it has.
//!
//! Peers differ in how they take the unknown: some ignore a member, and none can make anything of a content block of a type that
//! their version does not have.

use bowline_types::{
    CallToolRequest, CompleteRequest, CreateMessageRequest, ElicitRequest, GetPromptRequest, Json,
    ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    Method, RpcError,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::era::text::encode;
use crate::era::{Dialect, StructuredContent, unsendable};
use crate::json::{Object, pick};

/// Makes what is sent fit a dialect.
#[derive(Clone, Copy)]
pub(super) struct Fit(pub(super) &'static Dialect);

impl Fit {
    /// Whether a result of this method may have to be changed.
    pub(super) fn may_change(self, method: &str) -> bool {
        let absent = &self.0.absent;
        match method {
            ListToolsRequest::NAME => true, // its output schemas
            CallToolRequest::NAME | GetPromptRequest::NAME => !absent.blocks.is_empty(),
            CreateMessageRequest::NAME => !self.0.rich_sampling,
            _ => list_member(method).is_some() && !absent.of_listed.is_empty(),
        }
    }

    /// Changes a result.
    ///
    /// # Errors
    ///
    /// If the version has no words for it at all.
    pub(super) fn result(self, method: &str, result: &mut Object<'_>) -> Result<(), RpcError> {
        match method {
            CallToolRequest::NAME => self.tool_result(result),
            GetPromptRequest::NAME => self.prompt(result),
            CreateMessageRequest::NAME => self.sampled(result)?,
            _ => {
                if let Some(member) = list_member(method) {
                    self.list(member, result);
                }
            }
        }
        Ok(())
    }

    /// Changes the params of a request.
    pub(super) fn params(self, method: &str, params: &mut Object<'_>) {
        match method {
            CompleteRequest::NAME => {
                for name in self.0.absent.of_completions {
                    params.remove(name);
                }
            }
            CreateMessageRequest::NAME if !self.0.rich_sampling => {
                edit(params, "messages", |messages| self.one_block_each(messages));
            }
            ElicitRequest::NAME if !self.0.rich_forms => {
                params.remove("mode"); // there is one only
                edit(params, "requestedSchema", plain_form);
            }
            _ => {}
        }
    }

    pub(super) fn implementation(self, implementation: Json) -> Json {
        without(implementation, self.0.absent.of_implementations)
    }

    pub(super) fn client_capabilities(self, capabilities: Json) -> Json {
        let capabilities = without(capabilities, self.0.absent.of_client_capabilities);
        let Ok(mut object) = Object::read(&capabilities) else {
            return capabilities;
        };
        // What a client can do of each was not told apart: it can show forms, and have a model write something. Whether it adds
        // context for a model could always be asked for, so that it does no harm to say.
        if !self.0.rich_forms
            && let Some(modes) = object.remove("elicitation")
        {
            let [form, url] = pick(&modes, ["form", "url"]).unwrap_or_default();
            if form.is_some() || url.is_none() {
                object.set("elicitation", Json::empty_object());
            }
        }
        if !self.0.rich_sampling
            && let Some(sampling) = object.remove("sampling")
        {
            object.set("sampling", without(sampling, &["tools"]));
        }
        object.to_json()
    }

    fn tool_result(self, result: &mut Object<'_>) {
        if !self.0.absent.blocks.is_empty() {
            edit(result, "content", |content| self.blocks(content));
        }
        if self.can_hold(result.member("structuredContent")) {
            return;
        }
        let lost = result.remove("structuredContent");
        let content = result.member("content");
        let is_empty = content.is_none_or(|content| content.as_str() == "[]");
        if let (Some(lost), true) = (lost, is_empty) {
            // Nobody would be told anything otherwise.
            let text = json!([{"type": "text", "text": lost.as_str()}]);
            result.set("content", text.into());
        }
    }

    fn can_hold(self, structured: Option<&Json>) -> bool {
        match self.0.structured_content {
            StructuredContent::Absent => structured.is_none(),
            StructuredContent::Object => structured.is_none_or(Json::is_object),
            StructuredContent::Any => true,
        }
    }

    fn prompt(self, result: &mut Object<'_>) {
        if self.0.absent.blocks.is_empty() {
            return;
        }
        edit(result, "messages", |messages| {
            let Value::Array(messages) = messages else {
                return;
            };
            for content in messages.iter_mut().filter_map(|it| it.get_mut("content")) {
                self.block(content);
            }
        });
    }

    /// Changes the content of a message that a model wrote, which must be one block.
    fn sampled(self, result: &mut Object<'_>) -> Result<(), RpcError> {
        if self.0.rich_sampling {
            return Ok(());
        }
        let content = result.member("content").map(Json::decode::<Value>);
        let Some(Ok(Value::Array(mut blocks))) = content else {
            return Ok(());
        };
        blocks.iter_mut().for_each(|block| self.block(block));
        let texts = blocks.iter().map(|block| block["text"].as_str());
        let texts = texts.collect::<Option<Vec<_>>>();
        let one = match (&blocks[..], texts) {
            ([block], _) => block.clone(),
            (_, Some(texts)) => json!({"type": "text", "text": texts.join("\n")}),
            _ => {
                let why = "the caller's version takes one block of content from a model";
                return Err(unsendable(why));
            }
        };
        result.set("content", one.into());
        Ok(())
    }

    /// Says each block of a message in a message of its own.
    fn one_block_each(self, messages: &mut Value) {
        let Value::Array(messages) = messages else {
            return;
        };
        let mut each = Vec::new();
        for mut message in messages.drain(..) {
            let content = message.get_mut("content").map(Value::take);
            let blocks = match content {
                Some(Value::Array(blocks)) => blocks,
                Some(block) => vec![block],
                None => Vec::new(),
            };
            for mut block in blocks {
                self.block(&mut block);
                let mut message = message.clone();
                message["content"] = block;
                each.push(message);
            }
        }
        *messages = each;
    }

    fn blocks(self, content: &mut Value) {
        if let Value::Array(blocks) = content {
            blocks.iter_mut().for_each(|block| self.block(block));
        }
    }

    /// Says in a text what the version has no block for.
    fn block(self, block: &mut Value) {
        let kind = block["type"].as_str().unwrap_or_default();
        if !self.0.absent.blocks.contains(&kind) {
            return;
        }
        let member = |name: &str| block[name].as_str();
        let text = match kind {
            "resource_link" => {
                let name = member("title").or(member("name")).unwrap_or_default();
                format!("{name}: {}", member("uri").unwrap_or_default())
            }
            _ => {
                let media = member("mimeType").unwrap_or("unknown");
                format!("[{kind} of type {media}, which this version of the protocol cannot carry]")
            }
        };
        *block = json!({"type": "text", "text": text});
    }

    /// Takes away what the definitions in a list must not have here.
    fn list(self, member: &'static str, list: &mut Object<'_>) {
        let Some(items) = list.member(member).cloned() else {
            return;
        };
        let Ok(each) = items.decode::<Vec<&RawValue>>() else {
            return;
        };
        let mut fitted = Vec::with_capacity(each.len());
        let mut is_changed = false;
        for item in each {
            let item = items.part(item);
            let changed = Object::read(&item)
                .ok()
                .and_then(|object| self.definition(member, object));
            is_changed |= changed.is_some();
            fitted.push(changed.unwrap_or(item));
        }
        if is_changed {
            list.set(member, encode(&fitted));
        }
    }

    /// One definition without what it must not have, if it has such.
    fn definition(self, member: &str, mut object: Object<'_>) -> Option<Json> {
        let absent = &self.0.absent;
        let mut is_changed = false;
        for name in absent.of_listed {
            is_changed |= object.remove(name).is_some();
        }
        if member == "tools" {
            for name in absent.of_tools {
                is_changed |= object.remove(name).is_some();
            }
            // A promise that could not be kept; and a strict client would refuse the whole list for it.
            if !self.can_promise(object.member("outputSchema")) {
                is_changed |= object.remove("outputSchema").is_some();
            }
        }
        if member == "prompts" && !absent.of_listed.is_empty() {
            is_changed |= edit(&mut object, "arguments", |arguments| {
                let arguments = arguments.as_array_mut().into_iter().flatten();
                for argument in arguments.filter_map(Value::as_object_mut) {
                    argument.retain(|name, _| !absent.of_listed.contains(&name.as_str()));
                }
            });
        }
        is_changed.then(|| object.to_json())
    }

    /// Whether output that this schema describes is sent here.
    fn can_promise(self, schema: Option<&Json>) -> bool {
        match (self.0.structured_content, schema) {
            (_, None) | (StructuredContent::Any, _) => true,
            (StructuredContent::Absent, _) => false,
            (StructuredContent::Object, Some(schema)) => {
                let schema: Option<Map<String, Value>> = schema.decode().ok();
                schema.is_some_and(|schema| schema.get("type").is_some_and(|it| it == "object"))
            }
        }
    }
}

/// The member of a result that holds a list.
fn list_member(method: &str) -> Option<&'static str> {
    match method {
        ListToolsRequest::NAME => Some("tools"),
        ListPromptsRequest::NAME => Some("prompts"),
        ListResourcesRequest::NAME => Some("resources"),
        ListResourceTemplatesRequest::NAME => Some("resourceTemplates"),
        _ => None,
    }
}

/// Changes a member. Whether it is different now.
fn edit(object: &mut Object<'_>, name: &'static str, change: impl FnOnce(&mut Value)) -> bool {
    let Some(Ok(before)) = object.member(name).map(Json::decode::<Value>) else {
        return false;
    };
    let mut after = before.clone();
    change(&mut after);
    let is_changed = before != after;
    if is_changed {
        object.set(name, after.into());
    }
    is_changed
}

fn without(json: Json, names: &[&str]) -> Json {
    let Ok(mut object) = Object::read(&json) else {
        return json;
    };
    let mut is_changed = false;
    for name in names {
        is_changed |= object.remove(name).is_some();
    }
    let changed = is_changed.then(|| object.to_json());
    changed.unwrap_or(json)
}

/// A form as it was before choices had titles, and fields other than truth values defaults.
fn plain_form(schema: &mut Value) {
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for field in fields.into_iter().flat_map(Map::values_mut) {
        let Some(field) = field.as_object_mut() else {
            continue;
        };
        if field.get("type").is_none_or(|kind| kind != "boolean") {
            field.remove("default");
        }
        if let Some(Value::Array(choices)) = field.remove("oneOf") {
            let each = |name: &str| -> Vec<Value> {
                let member = |choice: &Value| choice.get(name).cloned().unwrap_or_default();
                choices.iter().map(member).collect()
            };
            field.insert("enum".to_owned(), each("const").into());
            field.insert("enumNames".to_owned(), each("title").into());
        }
    }
}

#[cfg(test)]
mod tests;
