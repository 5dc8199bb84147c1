//! Tools: `tools/list` and `tools/call`.
//!
//! Schemas, arguments and structured output stay raw text: every keyword, the order of keys and the
//! spelling of numbers survive.

use serde::{Deserialize, Serialize};

use crate::json::present;
use crate::legacy_tasks::{TaskMetadata, ToolExecution};
use crate::number::optional_lifetime;
use crate::{
    CacheScope, ContentBlock, Cursor, Icon, InputResponses, Json, Meta, OpenObject, ResultType,
};

/// Something a model can have done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Tool {
    /// Its name, for programs.
    pub name: String,
    /// Its name, for people (from 2025-06-18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does, for a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its arguments, whose `type` is `object`.
    pub input_schema: Json,
    /// The JSON Schema of its structured output (from 2025-06-18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// What to expect of it (from 2025-03-26).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// Whether it runs as a task (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ToolExecution>,
    /// How it may be shown (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icons: Option<Vec<Icon>>,
    /// What accompanies the tool (from 2025-06-18).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl Tool {
    /// A tool with a name and a schema of its arguments.
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

    /// Says what the tool does.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

/// What to expect of a tool. Hints: a client must not rely on them unless it trusts the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolAnnotations {
    /// The tool's name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// It changes nothing. Absent means no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// It may destroy something. Absent means yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Doing it twice is like doing it once. Absent means no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// It reaches beyond its own domain. Absent means yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// The result of `tools/list`: one page of tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListToolsResult {
    /// How to read the result (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// The tools.
    pub tools: Vec<Tool>,
    /// Where the next page starts, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// For how many milliseconds the result stays fresh (from 2026-07-28).
    #[serde(
        default,
        deserialize_with = "optional_lifetime",
        skip_serializing_if = "Option::is_none"
    )]
    pub ttl_ms: Option<u64>,
    /// Who may share the result (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_scope: Option<CacheScope>,
    /// What accompanies the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ListToolsResult {
    /// A page of tools.
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
    /// Its arguments: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// Answers to what the server asked for in an earlier round (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_responses: Option<InputResponses>,
    /// What the server wanted back from an earlier round (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
    /// Asks for the call to run as a task (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskMetadata>,
    /// What accompanies the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CallToolRequestParams {
    /// A call of a tool without arguments.
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
    /// How to read the result (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// What the tool says, for a model.
    pub content: Vec<ContentBlock>,
    /// What the tool says, for a program (from 2025-06-18). Until 2025-11-25 it is an object; later any
    /// value, and `null` is a value.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub structured_content: Option<Json>,
    /// The tool failed, and the content says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// What accompanies the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CallToolResult {
    /// A result with this content.
    #[must_use]
    pub fn new(content: Vec<ContentBlock>) -> Self {
        Self {
            content,
            ..Self::default()
        }
    }

    /// A result that is one block of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(vec![ContentBlock::text(text)])
    }

    /// A failure that the model is told about.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            is_error: Some(true),
            ..Self::text(text)
        }
    }

    /// Encodes the result as serde does, but faster: what is JSON already is not looked at once more, and
    /// long texts are copied rather than read.
    ///
    /// # Errors
    ///
    /// If something in it has no JSON form.
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
        let blocks = content.iter().map(ContentBlock::long_len);
        let structured = structured_content
            .as_ref()
            .map(|json| json.as_bytes().len());
        let mut object =
            OpenObject::with_room_for(blocks.sum::<usize>() + structured.unwrap_or_default());
        if let Some(result_type) = result_type {
            object.encode("resultType", result_type)?;
        }
        object.list("content", content, ContentBlock::push)?;
        if let Some(structured) = structured_content {
            object.add("structuredContent", structured);
        }
        if let Some(is_error) = is_error {
            object.encode("isError", is_error)?;
        }
        if let Some(meta) = meta {
            object.encode("_meta", meta)?;
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
