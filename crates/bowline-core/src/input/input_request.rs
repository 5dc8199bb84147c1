//! An input request of the specification: elicitation, sampling or roots, with undecoded params.
//!
//! Checks the required client capability and the outer shape of an answer; its content is checked on decoding.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bowline_types::{
    CapabilitySettings, ClientCapabilities, CreateMessageRequest, ElicitRequest,
    ElicitationCapability, InputRequest, Json, ListRootsRequest, Method,
    MissingRequiredClientCapability, RootsCapability, RpcError, SamplingCapability,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::digest::Digest;
use crate::json::Object;

/// An input request that a server sends to the client's host.
///
/// # Examples
///
/// ```
/// use bowline_core::input::{InputKind, RawInputRequest};
/// use bowline_types::{ClientCapabilities, RootsCapability};
///
/// let request = RawInputRequest::new(InputKind::Roots, None);
/// assert_eq!(request.to_json().as_str(), r#"{"method":"roots/list"}"#);
///
/// let mut capabilities = ClientCapabilities::default();
/// assert!(request.check_capabilities(&capabilities).is_err());
/// capabilities.roots = Some(RootsCapability::default());
/// assert!(request.check_capabilities(&capabilities).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawInputRequest {
    /// The kind of input.
    pub kind: InputKind,
    /// The params: an object, if present.
    pub params: Option<Json>,
}

/// The kind of an input request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(
    clippy::exhaustive_enums,
    reason = "the specification defines exactly these three"
)]
pub enum InputKind {
    /// Input from the user, by a form or a URL.
    #[serde(rename = "elicitation/create")]
    Elicitation,
    /// A message sampled from the client's language model.
    #[serde(rename = "sampling/createMessage")]
    Sampling,
    /// The roots: directories and files that the server may work in.
    #[serde(rename = "roots/list")]
    Roots,
}

impl InputKind {
    /// Returns the method of this kind.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Elicitation => ElicitRequest::NAME,
            Self::Sampling => CreateMessageRequest::NAME,
            Self::Roots => ListRootsRequest::NAME,
        }
    }

    /// Returns the kind of `method`, if it is an input request.
    #[must_use]
    pub fn from_method(method: &str) -> Option<Self> {
        [Self::Elicitation, Self::Sampling, Self::Roots]
            .into_iter()
            .find(|kind| kind.method() == method)
    }

    /// Checks the outer shape of an answer. Its content is checked when it is decoded.
    ///
    /// # Errors
    ///
    /// The expected shape.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_core::input::InputKind;
    /// use bowline_types::Json;
    ///
    /// let answer = Json::parse(r#"{"roots":[]}"#)?;
    /// assert_eq!(InputKind::Roots.check_answer(&answer), Ok(()));
    /// assert!(InputKind::Elicitation.check_answer(&answer).is_err());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn check_answer(self, answer: &Json) -> Result<(), &'static str> {
        let fits = match self {
            Self::Elicitation => answer
                .decode::<ElicitationShape>()
                .is_ok_and(|it| it.is_valid()),
            Self::Sampling => answer
                .decode::<SamplingShape>()
                .is_ok_and(|it| it.is_valid()),
            Self::Roots => answer.decode::<RootsShape>().is_ok_and(|it| it.is_valid()),
        };
        // Derived `Deserialize` implementations accept an array for a struct, too.
        if fits && answer.is_object() {
            return Ok(());
        }
        Err(match self {
            Self::Elicitation => {
                "expected an `action` (accept, decline or cancel) and optionally a `content` object"
            }
            Self::Sampling => {
                "expected a `role`, a `model` and a `content` that is a block or a list of blocks"
            }
            Self::Roots => "expected a list of `roots`",
        })
    }
}

impl fmt::Display for InputKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method())
    }
}

impl RawInputRequest {
    /// Creates an input request from encoded params.
    #[must_use]
    pub fn new(kind: InputKind, params: Option<Json>) -> Self {
        Self { kind, params }
    }

    /// Returns the method and params of the equivalent request to a legacy client.
    #[must_use]
    pub fn into_request(self) -> (&'static str, Option<Json>) {
        (self.kind.method(), self.params)
    }

    /// Converts a request of a legacy server, if it is an input request.
    #[must_use]
    pub fn from_request(method: &str, params: Option<Json>) -> Option<Self> {
        InputKind::from_method(method).map(|kind| Self { kind, params })
    }

    /// Returns whether it is a sampling request with `tools`, `toolChoice`, tool uses or tool results.
    #[must_use]
    pub fn has_tools(&self) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Sampling {
            tools: Option<Json>,
            tool_choice: Option<Json>,
            messages: Vec<Message>,
        }
        #[derive(Deserialize)]
        struct Message {
            content: Value,
        }

        if self.kind != InputKind::Sampling {
            return false;
        }
        let params = self.params.as_ref().map(Json::decode::<Sampling>);
        let Some(Ok(params)) = params else {
            return false;
        };
        let is_about_tools =
            |block: &Value| matches!(block["type"].as_str(), Some("tool_use" | "tool_result"));
        let mut messages = params.messages.iter();
        params.tools.is_some()
            || params.tool_choice.is_some()
            || messages.any(|message| match &message.content {
                Value::Array(blocks) => blocks.iter().any(is_about_tools),
                block => is_about_tools(block),
            })
    }

    /// Returns whether it is an elicitation in URL mode.
    #[must_use]
    pub fn is_url(&self) -> bool {
        let params = self.params.as_ref().and_then(|it| it.decode().ok());
        let params: CapabilityParams<'_> = params.unwrap_or_default();
        self.kind == InputKind::Elicitation && params.mode.as_deref() == Some("url")
    }

    /// Returns whether it is a form with a multi-select field.
    #[must_use]
    pub fn has_multi_select(&self) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Form {
            requested_schema: Schema,
        }
        #[derive(Deserialize)]
        struct Schema {
            properties: BTreeMap<String, Value>,
        }

        if self.kind != InputKind::Elicitation {
            return false;
        }
        let form = self.params.as_ref().map(Json::decode::<Form>);
        let Some(Ok(form)) = form else {
            return false;
        };
        let mut fields = form.requested_schema.properties.values();
        fields.any(|field| field["type"] == "array")
    }

    /// Returns the entry of `inputRequests`.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut object = Object::default();
        object.set("method", Json::from(Value::from(self.kind.method())));
        if let Some(params) = &self.params {
            object.set("params", params.clone());
        }
        object.to_json()
    }

    /// Decodes the input request.
    ///
    /// # Errors
    ///
    /// If the params do not match the method.
    pub fn to_input_request(&self) -> Result<InputRequest, serde_json::Error> {
        self.to_json().decode()
    }

    /// Returns the digest of the canonical form, which does not depend on the order of members.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_input_request(self.kind, self.params.as_ref())
    }

    /// Checks that a client with these capabilities supports this input request.
    ///
    /// A server checks before sending. A client that receives an unsupported input request should fail the call: the
    /// specification defines no answer for "not supported".
    ///
    /// # Errors
    ///
    /// If a capability is missing; [`MissingCapability::to_rpc_error`] is the error for the client.
    pub fn check_capabilities(
        &self,
        declared: &ClientCapabilities,
    ) -> Result<(), MissingCapability> {
        let params = self.params.as_ref().and_then(|it| it.decode().ok());
        let params: CapabilityParams<'_> = params.unwrap_or_default();
        let mut required = ClientCapabilities::default();
        match self.kind {
            InputKind::Elicitation => {
                required.elicitation = elicitation_missing(declared.elicitation.as_ref(), &params);
            }
            InputKind::Sampling => {
                required.sampling = sampling_missing(declared.sampling.as_ref(), &params);
            }
            InputKind::Roots if declared.roots.is_none() => {
                required.roots = Some(RootsCapability::default());
            }
            InputKind::Roots => {}
        }
        if required == ClientCapabilities::default() {
            return Ok(());
        }
        let required = Box::new(required);
        Err(MissingCapability { required })
    }
}

/// The client does not declare a capability that an input request requires.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the client does not declare the capability {}", self.to_json())]
#[non_exhaustive]
pub struct MissingCapability {
    /// Only the missing capabilities.
    pub required: Box<ClientCapabilities>,
}

impl MissingCapability {
    /// Returns the JSON-RPC error for the client.
    #[must_use]
    pub fn to_rpc_error(&self) -> RpcError {
        MissingRequiredClientCapability::new((*self.required).clone()).into()
    }

    fn to_json(&self) -> Json {
        Json::encode(&self.required).expect("capabilities are serializable")
    }
}

fn elicitation_missing(
    declared: Option<&ElicitationCapability>,
    params: &CapabilityParams<'_>,
) -> Option<ElicitationCapability> {
    let mut missing = ElicitationCapability::default();
    match (params.mode.as_deref(), declared) {
        (Some("url"), Some(declared)) if declared.url.is_some() => return None,
        (Some("url"), _) => missing.url = Some(CapabilitySettings::default()),
        (_, None) => {}
        // A capability without modes means `form`, the only mode of the first revision.
        (_, Some(declared)) if declared.form.is_some() || declared.url.is_none() => return None,
        (_, Some(_)) => missing.form = Some(CapabilitySettings::default()),
    }
    Some(missing)
}

fn sampling_missing(
    declared: Option<&SamplingCapability>,
    params: &CapabilityParams<'_>,
) -> Option<SamplingCapability> {
    let with_tools = params.tools.is_some() || params.tool_choice.is_some();
    let context = params.include_context.as_deref();
    let with_context = context.is_some_and(|context| context != "none");
    let mut missing = SamplingCapability::default();
    if with_tools && declared.is_none_or(|declared| declared.tools.is_none()) {
        missing.tools = Some(CapabilitySettings::default());
    }
    if with_context && declared.is_none_or(|declared| declared.context.is_none()) {
        missing.context = Some(CapabilitySettings::default());
    }
    (declared.is_none() || missing != SamplingCapability::default()).then_some(missing)
}

/// The params, of any kind, that determine the required capability.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CapabilityParams<'a> {
    #[serde(borrow)]
    mode: Option<Cow<'a, str>>,
    tools: Option<Json>,
    tool_choice: Option<Json>,
    #[serde(borrow)]
    include_context: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ElicitationShape {
    action: String,
    content: Option<Json>,
}

impl ElicitationShape {
    fn is_valid(&self) -> bool {
        matches!(&*self.action, "accept" | "decline" | "cancel")
            && self.content.as_ref().is_none_or(Json::is_object)
    }
}

#[derive(Deserialize)]
struct SamplingShape {
    role: String,
    #[serde(rename = "model")]
    _model: String,
    content: Json,
}

impl SamplingShape {
    fn is_valid(&self) -> bool {
        matches!(&*self.role, "user" | "assistant")
            && (self.content.is_object() || is_list(&self.content))
    }
}

#[derive(Deserialize)]
struct RootsShape {
    roots: Json,
}

impl RootsShape {
    fn is_valid(&self) -> bool {
        is_list(&self.roots)
    }
}

fn is_list(json: &Json) -> bool {
    json.as_bytes().first() == Some(&b'[')
}

#[cfg(test)]
mod tests {
    use bowline_types::ErrorCode;

    use super::*;

    fn json(text: &'static str) -> Json {
        Json::parse(text).unwrap()
    }

    /// Returns the missing capabilities, or `""`.
    fn missing(kind: InputKind, params: &'static str, declared: &'static str) -> String {
        let request = RawInputRequest::new(kind, Some(json(params)));
        request
            .check_capabilities(&json(declared).decode().unwrap())
            .map_or_else(|error| error.to_json().to_string(), |()| String::new())
    }

    #[test]
    fn a_form_needs_a_client_that_declares_no_mode_or_form() {
        let form = r#"{"message":"?","requestedSchema":{}}"#;

        assert_eq!(
            missing(InputKind::Elicitation, form, r#"{"elicitation":{}}"#),
            ""
        );
        assert_eq!(
            missing(
                InputKind::Elicitation,
                form,
                r#"{"elicitation":{"form":{}}}"#
            ),
            ""
        );
        assert_eq!(
            missing(
                InputKind::Elicitation,
                form,
                r#"{"elicitation":{"url":{}}}"#
            ),
            r#"{"elicitation":{"form":{}}}"#
        );
        assert_eq!(
            missing(InputKind::Elicitation, form, "{}"),
            r#"{"elicitation":{}}"#
        );
    }

    #[test]
    fn a_url_needs_a_client_that_declares_url() {
        let url = r#"{"mode":"url","message":"?","url":"https://example.com"}"#;
        let required = r#"{"elicitation":{"url":{}}}"#;

        assert_eq!(
            missing(InputKind::Elicitation, url, r#"{"elicitation":{"url":{}}}"#),
            ""
        );
        for declared in [
            "{}",
            r#"{"elicitation":{}}"#,
            r#"{"elicitation":{"form":{}}}"#,
            r#"{"elicitation":null}"#,
        ] {
            assert_eq!(missing(InputKind::Elicitation, url, declared), required);
        }
    }

    #[test]
    fn sampling_with_tools_or_context_needs_more_than_sampling() {
        let plain = r#"{"messages":[],"maxTokens":1,"includeContext":"none"}"#;
        let both = r#"{"messages":[],"maxTokens":1,"tools":[],"includeContext":"thisServer"}"#;
        let choice = r#"{"messages":[],"maxTokens":1,"toolChoice":{}}"#;
        let declared = r#"{"sampling":{}}"#;

        assert_eq!(missing(InputKind::Sampling, plain, declared), "");
        assert_eq!(
            missing(InputKind::Sampling, plain, "{}"),
            r#"{"sampling":{}}"#
        );
        assert_eq!(
            missing(InputKind::Sampling, both, declared),
            r#"{"sampling":{"context":{},"tools":{}}}"#
        );
        assert_eq!(
            missing(InputKind::Sampling, choice, declared),
            r#"{"sampling":{"tools":{}}}"#
        );
        assert_eq!(
            missing(
                InputKind::Sampling,
                both,
                r#"{"sampling":{"tools":{},"context":{}}}"#
            ),
            ""
        );
    }

    #[test]
    fn roots_need_a_client_that_declares_roots() {
        assert_eq!(missing(InputKind::Roots, "{}", r#"{"roots":{}}"#), "");
        assert_eq!(missing(InputKind::Roots, "{}", "{}"), r#"{"roots":{}}"#);
    }

    #[test]
    fn the_error_names_the_missing_capability() {
        let request = RawInputRequest::new(InputKind::Roots, None);

        let error = request
            .check_capabilities(&ClientCapabilities::default())
            .unwrap_err()
            .to_rpc_error();

        assert_eq!(error.code, ErrorCode::MISSING_CLIENT_CAPABILITY);
        assert_eq!(
            error.data.unwrap().as_str(),
            r#"{"requiredCapabilities":{"roots":{}}}"#
        );
    }

    #[test]
    fn an_answer_is_checked_by_the_kind_of_its_input_request() {
        let accepted = json(r#"{"action":"accept","content":{"n":1}}"#);
        let declined = json(r#"{"action":"decline"}"#);
        let sampled = json(r#"{"role":"assistant","model":"m","content":[]}"#);
        let roots = json(r#"{"roots":[]}"#);

        assert!(InputKind::Elicitation.check_answer(&accepted).is_ok());
        assert!(InputKind::Elicitation.check_answer(&declined).is_ok());
        assert!(InputKind::Sampling.check_answer(&sampled).is_ok());
        assert!(InputKind::Roots.check_answer(&roots).is_ok());
        for wrong in [
            json("12345"),
            json("null"),
            json(r#"{"action":"maybe"}"#),
            json(r#"{"action":"accept","content":[]}"#),
            json(r#"["accept",null]"#),
            json("[[]]"),
            json(r#"{"roots":{}}"#),
            json(r#"{"role":"system","model":"m","content":{}}"#),
        ] {
            for kind in [
                InputKind::Elicitation,
                InputKind::Sampling,
                InputKind::Roots,
            ] {
                assert!(kind.check_answer(&wrong).is_err(), "{kind} took {wrong}");
            }
        }
    }

    #[test]
    fn a_legacy_request_converts_to_an_input_request_and_back() {
        let request = RawInputRequest::new(InputKind::Sampling, Some(json(r#"{"maxTokens":1}"#)));

        let (method, params) = request.clone().into_request();

        assert_eq!(method, "sampling/createMessage");
        assert_eq!(InputKind::Sampling.to_string(), method);
        assert_eq!(RawInputRequest::from_request(method, params), Some(request));
        assert_eq!(RawInputRequest::from_request("tools/call", None), None);
    }

    #[test]
    fn an_input_request_is_decoded_by_its_method() {
        let roots = RawInputRequest::new(InputKind::Roots, None);
        let vague = RawInputRequest::new(InputKind::Sampling, Some(Json::empty_object()));

        assert_eq!(
            roots.to_input_request().unwrap(),
            InputRequest::ListRoots(None)
        );
        assert!(vague.to_input_request().is_err());
    }
    #[test]
    fn sampling_has_tools_if_it_names_tools_or_contains_their_uses() {
        let has_tools = |kind, params| RawInputRequest::new(kind, Some(json(params))).has_tools();
        let use_of_tool = r#"{"messages":[{"content":{"type":"tool_use"}}]}"#;
        for params in [
            use_of_tool,
            r#"{"messages":[{"content":[{"type":"text"},{"type":"tool_result"}]}]}"#,
            r#"{"messages":[],"tools":[]}"#,
            r#"{"messages":[],"toolChoice":{}}"#,
        ] {
            assert!(has_tools(InputKind::Sampling, params), "{params}");
        }
        let plain = r#"{"messages":[{"content":{"type":"text"}},{"content":[{"type":"text"}]}]}"#;
        for params in [plain, r#"{"tools":[]}"#] {
            assert!(!has_tools(InputKind::Sampling, params), "{params}");
        }
        assert!(!has_tools(InputKind::Elicitation, use_of_tool));
        assert!(!RawInputRequest::new(InputKind::Sampling, None).has_tools());
    }

    #[test]
    fn a_form_has_a_multi_select_if_a_field_is_an_array() {
        let has_multi_select =
            |kind, params| RawInputRequest::new(kind, Some(json(params))).has_multi_select();
        let multi_select =
            r#"{"requestedSchema":{"properties":{"a":{"type":"string"},"b":{"type":"array"}}}}"#;
        let plain = r#"{"requestedSchema":{"properties":{"a":{"type":"string"}}}}"#;

        assert!(has_multi_select(InputKind::Elicitation, multi_select));
        for params in [plain, r#"{"mode":"url","url":"https://a.example"}"#] {
            assert!(
                !has_multi_select(InputKind::Elicitation, params),
                "{params}"
            );
        }
        assert!(!has_multi_select(InputKind::Sampling, multi_select));
    }
}
