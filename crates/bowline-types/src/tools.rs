//! Tools: `tools/list` and `tools/call`.
//!
//! Schemas, arguments and structured output stay raw text, which preserves unknown keywords, the order of
//! keys and the spelling of numbers.

use serde::{Deserialize, Serialize};

use crate::json::deserialize_present;
use crate::legacy_tasks::{TaskMetadata, ToolExecution};
use crate::number::optional_ttl;
use crate::{
    CacheScope, ContentBlock, Cursor, Icon, InputResponses, Json, JsonObjectWriter, Meta,
    ResultType,
};

/// The definition of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Tool {
    /// The programmatic name.
    pub name: String,
    /// The display name (from 2025-06-18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A description for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of the arguments, whose `type` is `object`.
    pub input_schema: Json,
    /// The JSON Schema of the structured output (from 2025-06-18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// Hints about its behavior (from 2025-03-26).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// Whether it can run as a task (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ToolExecution>,
    /// The icons to display (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icons: Option<Vec<Icon>>,
    /// The `_meta` of the tool (from 2025-06-18).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl Tool {
    /// Creates a tool with a name and an input schema.
    #[must_use]
    pub fn new(name: impl Into<String>, input_schema: impl Into<Json>) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            input_schema: input_schema.into(),
            output_schema: None,
            annotations: None,
            execution: None,
            icons: None,
            meta: None,
        }
    }

    /// Sets the description.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

/// Hints about the behavior of a tool. A client must not rely on them unless it trusts the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolAnnotations {
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The tool does not modify its environment. Default: `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// The tool may perform destructive updates. Default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Repeated calls with the same arguments have no further effect. Default: `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// The tool interacts with external entities, such as the web. Default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// The result of `tools/list`: one page of tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListToolsResult {
    /// The type of the result (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// The tools.
    pub tools: Vec<Tool>,
    /// The cursor of the next page; `None` on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// How long the result stays fresh, in milliseconds (from 2026-07-28).
    #[serde(
        default,
        deserialize_with = "optional_ttl",
        skip_serializing_if = "Option::is_none"
    )]
    pub ttl_ms: Option<u64>,
    /// Whether caches may share the result between users (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_scope: Option<CacheScope>,
    /// The `_meta` of the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ListToolsResult {
    /// Creates a page of tools.
    #[must_use]
    pub fn new(tools: Vec<Tool>) -> Self {
        Self {
            tools,
            ..Self::default()
        }
    }
}

/// The params of `tools/call`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CallToolRequestParams {
    /// The name of the tool.
    pub name: String,
    /// The arguments: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// The responses to the input requests of the previous round (multi round-trip, from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_responses: Option<InputResponses>,
    /// The `requestState` of the previous round, unchanged (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
    /// Requests execution as a task (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskMetadata>,
    /// The `_meta` of the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CallToolRequestParams {
    /// Creates params without arguments.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            arguments: None,
            input_responses: None,
            request_state: None,
            task: None,
            meta: None,
        }
    }

    /// Sets the arguments.
    #[must_use]
    pub fn with_arguments(mut self, arguments: impl Into<Json>) -> Self {
        self.arguments = Some(arguments.into());
        self
    }
}

/// The result of `tools/call`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CallToolResult {
    /// The type of the result (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// The output for the model.
    pub content: Vec<ContentBlock>,
    /// The structured output (from 2025-06-18): until 2025-11-25 an object, later any value, and
    /// `Some(null)` differs from `None`.
    #[serde(
        default,
        deserialize_with = "deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub structured_content: Option<Json>,
    /// The tool failed, and the content describes the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// The `_meta` of the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CallToolResult {
    /// Creates a result with this content.
    #[must_use]
    pub fn new(content: Vec<ContentBlock>) -> Self {
        Self {
            content,
            ..Self::default()
        }
    }

    /// Creates a result with one block of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(vec![ContentBlock::text(text)])
    }

    /// Creates an error result (`isError`) with one block of text.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            is_error: Some(true),
            ..Self::text(text)
        }
    }

    /// Encodes the result like serde, but faster: structured content is not validated again, and long texts
    /// are copied in runs.
    ///
    /// # Errors
    ///
    /// If a part of it cannot be serialized to JSON.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_types::CallToolResult;
    ///
    /// let result = CallToolResult::text("done").to_json()?;
    /// assert_eq!(result.as_str(), r#"{"content":[{"type":"text","text":"done"}]}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn to_json(&self) -> Result<Json, serde_json::Error> {
        let Self {
            result_type,
            content,
            structured_content,
            is_error,
            meta,
        } = self;
        let blocks = content.iter().map(ContentBlock::payload_len);
        let structured = structured_content
            .as_ref()
            .map(|json| json.as_bytes().len());
        let mut object =
            JsonObjectWriter::with_capacity(blocks.sum::<usize>() + structured.unwrap_or_default());
        if let Some(result_type) = result_type {
            object.add_encoded("resultType", result_type)?;
        }
        object.add_list("content", content, ContentBlock::push)?;
        if let Some(structured) = structured_content {
            object.add("structuredContent", structured);
        }
        if let Some(is_error) = is_error {
            object.add_encoded("isError", is_error)?;
        }
        if let Some(meta) = meta {
            object.add_encoded("_meta", meta)?;
        }
        Ok(object.close())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structured_content_that_is_null_differs_from_none() {
        let null: CallToolResult =
            serde_json::from_str(r#"{"content":[],"structuredContent":null}"#).unwrap();
        let none: CallToolResult = serde_json::from_str(r#"{"content":[]}"#).unwrap();

        assert_eq!(null.structured_content, Some(Json::null()));
        assert_eq!(
            serde_json::to_string(&null).unwrap(),
            r#"{"content":[],"structuredContent":null}"#
        );
        assert_eq!(none.structured_content, None);
        assert_eq!(serde_json::to_string(&none).unwrap(), r#"{"content":[]}"#);
    }

    #[test]
    fn a_result_is_encoded_as_serde_encodes_it() {
        let mut noted = crate::TextContent::new("noted");
        noted.annotations = Some(crate::Annotations::default());
        let image = crate::ImageContent::new("AAAA", "image/png");
        let mut meta = Meta::default();
        meta.insert("own", Json::from_static("[1, 2]"));
        let results = [
            CallToolResult::default(),
            CallToolResult::text("one\n\"two\" é"),
            CallToolResult::error(""),
            CallToolResult {
                result_type: Some(ResultType::COMPLETE),
                content: vec![noted.into(), image.into(), ContentBlock::text("last")],
                structured_content: Some(Json::from_static("{\"a\" : 1.0}")),
                is_error: Some(false),
                meta: Some(meta),
            },
        ];
        for result in results {
            let encoded = result.to_json().unwrap();

            assert_eq!(encoded.as_str(), serde_json::to_string(&result).unwrap());
        }
    }

    #[test]
    fn a_schema_keeps_its_text() {
        let text = r#"{"name":"a","inputSchema":{"type":"object","x-order":[1.0],"properties":{"z":{},"a":{}}}}"#;

        let tool: Tool = serde_json::from_str(text).unwrap();

        assert_eq!(serde_json::to_string(&tool).unwrap(), text);
    }
}
