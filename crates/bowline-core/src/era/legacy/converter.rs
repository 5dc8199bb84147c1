//! Converts outgoing messages to what a legacy revision defines: removes unknown members, replaces unknown content
//! blocks.
//!
//! Most peers ignore an unknown member, but a strict one rejects the whole message, and nearly all of them reject an
//! unknown type of content block.

use bowline_types::{
    CallToolRequest, CompleteRequest, CreateMessageRequest, ElicitRequest, GetPromptRequest, Json,
    ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    Method, RpcError,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::era::edit::encode;
use crate::era::{Dialect, StructuredContent, unsendable_result};
use crate::json::{Object, pick};

/// Converts messages for one dialect.
#[derive(Clone, Copy)]
pub(super) struct RevisionConverter(pub(super) &'static Dialect);

impl RevisionConverter {
    /// Returns whether results of this method may need a conversion.
    pub(super) fn may_change(self, method: &str) -> bool {
        let undefined = &self.0.undefined;
        match method {
            ListToolsRequest::NAME => true, // its output schemas
            CallToolRequest::NAME | GetPromptRequest::NAME => !undefined.content_blocks.is_empty(),
            CreateMessageRequest::NAME => !self.0.rich_sampling,
            _ => list_member(method).is_some() && !undefined.definition.is_empty(),
        }
    }

    /// Converts a result.
    ///
    /// # Errors
    ///
    /// If the revision cannot express it.
    pub(super) fn result(self, method: &str, result: &mut Object<'_>) -> Result<(), RpcError> {
        match method {
            CallToolRequest::NAME => self.tool_result(result),
            GetPromptRequest::NAME => self.prompt(result),
            CreateMessageRequest::NAME => self.sampling_result(result)?,
            _ => {
                if let Some(member) = list_member(method) {
                    self.list(member, result);
                }
            }
        }
        Ok(())
    }

    /// Converts the params of a request.
    pub(super) fn params(self, method: &str, params: &mut Object<'_>) {
        match method {
            CompleteRequest::NAME => {
                for name in self.0.undefined.completion_params {
                    params.remove(name);
                }
            }
            CreateMessageRequest::NAME if !self.0.rich_sampling => {
                edit(params, "messages", |messages| {
                    self.split_into_single_blocks(messages)
                });
            }
            ElicitRequest::NAME if !self.0.rich_forms => {
                params.remove("mode"); // form is the only mode
                edit(params, "requestedSchema", downgrade_form_schema);
            }
            _ => {}
        }
    }

    pub(super) fn implementation(self, implementation: Json) -> Json {
        without(implementation, self.0.undefined.implementation)
    }

    pub(super) fn client_capabilities(self, capabilities: Json) -> Json {
        let capabilities = without(capabilities, self.0.undefined.client_capabilities);
        let Ok(mut object) = Object::read(&capabilities) else {
            return capabilities;
        };
        // Elicitation had the form mode only. `sampling.context` is kept, because `includeContext` exists in every
        // revision and a server detects its support by this member.
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
        if !self.0.undefined.content_blocks.is_empty() {
            edit(result, "content", |content| self.blocks(content));
        }
        if self.can_express(result.member("structuredContent")) {
            return;
        }
        let lost = result.remove("structuredContent");
        let content = result.member("content");
        // Of a relayed result the text is that of another server, which may contain spaces.
        let is_empty = content.is_none_or(|content| content.decode::<[(); 0]>().is_ok());
        if let (Some(lost), true) = (lost, is_empty) {
            // Without a text block the model would get an empty result.
            let text = json!([{"type": "text", "text": lost.as_str()}]);
            result.set("content", text.into());
        }
    }

    fn can_express(self, structured: Option<&Json>) -> bool {
        match self.0.structured_content {
            StructuredContent::Absent => structured.is_none(),
            StructuredContent::Object => structured.is_none_or(Json::is_object),
            StructuredContent::Any => true,
        }
    }

    fn prompt(self, result: &mut Object<'_>) {
        if self.0.undefined.content_blocks.is_empty() {
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

    /// Converts the content of a sampling result to one block.
    fn sampling_result(self, result: &mut Object<'_>) -> Result<(), RpcError> {
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
                let why = "the caller's version allows one content block in a sampling result";
                return Err(unsendable_result(why));
            }
        };
        result.set("content", one.into());
        Ok(())
    }

    /// Splits messages with several content blocks into messages with one block each.
    fn split_into_single_blocks(self, messages: &mut Value) {
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

    /// Replaces a content block that the revision does not define by a text block.
    fn block(self, block: &mut Value) {
        let kind = block["type"].as_str().unwrap_or_default();
        if !self.0.undefined.content_blocks.contains(&kind) {
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
                format!("[{kind} of type {media}, which this protocol version does not support]")
            }
        };
        *block = json!({"type": "text", "text": text});
    }

    /// Removes unknown members from the definitions in a list result.
    fn list(self, member: &'static str, list: &mut Object<'_>) {
        let Some(items) = list.member(member).cloned() else {
            return;
        };
        let Ok(each) = items.decode::<Vec<&RawValue>>() else {
            return;
        };
        let mut converted = Vec::with_capacity(each.len());
        let mut is_changed = false;
        for item in each {
            let item = items.part(item);
            let changed = Object::read(&item)
                .ok()
                .and_then(|object| self.definition(member, object));
            is_changed |= changed.is_some();
            converted.push(changed.unwrap_or(item));
        }
        if is_changed {
            list.set(member, encode(&converted));
        }
    }

    /// Returns the definition without unknown members, or `None` if it has none.
    fn definition(self, member: &str, mut object: Object<'_>) -> Option<Json> {
        let undefined = &self.0.undefined;
        let mut is_changed = false;
        for name in undefined.definition {
            is_changed |= object.remove(name).is_some();
        }
        if member == "tools" {
            for name in undefined.tool {
                is_changed |= object.remove(name).is_some();
            }
            // The structured content will not be sent, and a strict client would reject the whole list.
            if !self.sends_structured_output(object.member("outputSchema")) {
                is_changed |= object.remove("outputSchema").is_some();
            }
        }
        if member == "prompts" {
            is_changed |= edit(&mut object, "arguments", |arguments| {
                let arguments = arguments.as_array_mut().into_iter().flatten();
                for argument in arguments.filter_map(Value::as_object_mut) {
                    argument.retain(|name, _| !undefined.definition.contains(&name.as_str()));
                }
            });
        }
        is_changed.then(|| object.to_json())
    }

    /// Returns whether structured content of this schema is sent in this revision.
    fn sends_structured_output(self, schema: Option<&Json>) -> bool {
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

/// The member of a list result that holds the list.
fn list_member(method: &str) -> Option<&'static str> {
    match method {
        ListToolsRequest::NAME => Some("tools"),
        ListPromptsRequest::NAME => Some("prompts"),
        ListResourcesRequest::NAME => Some("resources"),
        ListResourceTemplatesRequest::NAME => Some("resourceTemplates"),
        _ => None,
    }
}

/// Edits a member and returns whether it changed.
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

/// Converts an elicitation schema to 2025-06-18: `enumNames` instead of titled choices, defaults for booleans only.
fn downgrade_form_schema(schema: &mut Value) {
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("$schema");
    }
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
