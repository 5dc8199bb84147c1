//! One thing a server wants to know from the client's host.
//!
//! A question is the specification's input request with its params still text. It knows which client
//! capability it needs and what an answer to it looks like from afar; the rest is up to whoever decodes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bowline_types::{
    ClientCapabilities, CreateMessageRequest, ElicitRequest, ElicitationCapability, ErrorCode,
    InputRequest, Json, ListRootsRequest, Method, RootsCapability, RpcError, SamplingCapability,
    Settings,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::digest::Digest;
use crate::json::Object;

/// What a server asks of the client's host.
///
/// # Examples
///
/// ```
/// use bowline_core::input::{Kind, Question};
/// use bowline_types::{ClientCapabilities, RootsCapability};
///
/// let question = Question::new(Kind::Roots, None);
/// assert_eq!(question.to_json().as_str(), r#"{"method":"roots/list"}"#);
///
/// let mut capabilities = ClientCapabilities::default();
/// assert!(question.check_capabilities(&capabilities).is_err());
/// capabilities.roots = Some(RootsCapability::default());
/// assert!(question.check_capabilities(&capabilities).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Question {
    /// Which of the three it is.
    pub kind: Kind,
    /// An object, if present.
    pub params: Option<Json>,
}

/// The three things that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(
    clippy::exhaustive_enums,
    reason = "the specification closes the set, so that a host can answer all of it"
)]
pub enum Kind {
    /// Asks the user, by a form or by a visit to a URL.
    #[serde(rename = "elicitation/create")]
    Elicitation,
    /// Asks the client's language model.
    #[serde(rename = "sampling/createMessage")]
    Sampling,
    /// Asks which folders the server may work in.
    #[serde(rename = "roots/list")]
    Roots,
}

impl Kind {
    /// The method that asks it.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Elicitation => ElicitRequest::NAME,
            Self::Sampling => CreateMessageRequest::NAME,
            Self::Roots => ListRootsRequest::NAME,
        }
    }

    /// The kind that `method` asks for, if it asks for one.
    #[must_use]
    pub fn from_method(method: &str) -> Option<Self> {
        [Self::Elicitation, Self::Sampling, Self::Roots]
            .into_iter()
            .find(|kind| kind.method() == method)
    }

    /// Judges an answer from afar: is it an answer to this kind of question at all?
    pub(super) fn check_answer(self, answer: &Json) -> Result<(), &'static str> {
        let fits = match self {
            Self::Elicitation => answer.decode::<Elicited>().is_ok_and(|it| it.is_sound()),
            Self::Sampling => answer.decode::<Sampled>().is_ok_and(|it| it.is_sound()),
            Self::Roots => answer.decode::<Rooted>().is_ok_and(|it| it.is_sound()),
        };
        // Derived readers take an array for an object as well.
        if fits && answer.is_object() {
            return Ok(());
        }
        Err(match self {
            Self::Elicitation => {
                "it must have an `action` (accept, decline or cancel) and may have a `content` object"
            }
            Self::Sampling => {
                "it must have a `role`, a `model` and a `content` that is a block or a list of blocks"
            }
            Self::Roots => "it must have a list of `roots`",
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method())
    }
}

impl Question {
    /// A question with params that are already JSON.
    #[must_use]
    pub fn new(kind: Kind, params: Option<Json>) -> Self {
        Self { kind, params }
    }

    /// The method and params of the request that puts this question to a legacy client.
    #[must_use]
    pub fn into_request(self) -> (&'static str, Option<Json>) {
        (self.kind.method(), self.params)
    }

    /// The question that a legacy server's request puts, if it puts one.
    #[must_use]
    pub fn from_request(method: &str, params: Option<Json>) -> Option<Self> {
        Kind::from_method(method).map(|kind| Self { kind, params })
    }

    /// Whether it gives the model tools, or shows it what came of them.
    #[must_use]
    pub fn uses_tools(&self) -> bool {
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

        if self.kind != Kind::Sampling {
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

    /// Whether it is a form in which several values can be chosen at once.
    #[must_use]
    pub fn offers_several(&self) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Form {
            requested_schema: Schema,
        }
        #[derive(Deserialize)]
        struct Schema {
            properties: BTreeMap<String, Value>,
        }

        if self.kind != Kind::Elicitation {
            return false;
        }
        let form = self.params.as_ref().map(Json::decode::<Form>);
        let Some(Ok(form)) = form else {
            return false;
        };
        let mut fields = form.requested_schema.properties.values();
        fields.any(|field| field["type"] == "array")
    }

    /// The question as it stands in `inputRequests`.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut object = Object::default();
        object.set("method", Json::from(Value::from(self.kind.method())));
        if let Some(params) = &self.params {
            object.set("params", params.clone());
        }
        object.to_json()
    }

    /// The question decoded, for a host to answer.
    ///
    /// # Errors
    ///
    /// If the params do not have the shape that their method names.
    pub fn to_input_request(&self) -> Result<InputRequest, serde_json::Error> {
        self.to_json().decode()
    }

    /// Tells one question from another, whatever the order of their members.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_question(self.kind, self.params.as_ref())
    }

    /// Checks that a client with these capabilities can be asked this.
    ///
    /// A server checks before it asks. A client that is asked what it has not declared should fail the
    /// call, for there is no way to answer "I cannot".
    ///
    /// # Errors
    ///
    /// If a capability is missing; the error is what the client is told.
    pub fn check_capabilities(
        &self,
        declared: &ClientCapabilities,
    ) -> Result<(), MissingCapability> {
        let params = self.params.as_ref().and_then(|it| it.decode().ok());
        let params: Params<'_> = params.unwrap_or_default();
        let mut required = ClientCapabilities::default();
        match self.kind {
            Kind::Elicitation => {
                required.elicitation = elicitation_missing(declared.elicitation.as_ref(), &params);
            }
            Kind::Sampling => {
                required.sampling = sampling_missing(declared.sampling.as_ref(), &params);
            }
            Kind::Roots if declared.roots.is_none() => {
                required.roots = Some(RootsCapability::default());
            }
            Kind::Roots => {}
        }
        if required == ClientCapabilities::default() {
            return Ok(());
        }
        let required = Box::new(required);
        Err(MissingCapability { required })
    }
}

/// The client did not declare what a question needs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the client does not declare the capability {}", self.to_json())]
#[non_exhaustive]
pub struct MissingCapability {
    /// What is missing, and nothing else.
    pub required: Box<ClientCapabilities>,
}

impl MissingCapability {
    /// What the client is told.
    #[must_use]
    pub fn to_rpc_error(&self) -> RpcError {
        let mut data = Object::default();
        data.set("requiredCapabilities", self.to_json());
        RpcError::new(
            ErrorCode::MISSING_CLIENT_CAPABILITY,
            format!(
                "this request needs the client capability {}",
                self.to_json()
            ),
        )
        .with_data(data.to_json())
    }

    fn to_json(&self) -> Json {
        Json::encode(&self.required).expect("capabilities have a JSON form")
    }
}

fn elicitation_missing(
    declared: Option<&ElicitationCapability>,
    params: &Params<'_>,
) -> Option<ElicitationCapability> {
    let mut missing = ElicitationCapability::default();
    match (params.mode.as_deref(), declared) {
        (Some("url"), Some(declared)) if declared.url.is_some() => return None,
        (Some("url"), _) => missing.url = Some(Settings::default()),
        (_, None) => {}
        // Naming no mode is how clients say "form", the only mode there was at first.
        (_, Some(declared)) if declared.form.is_some() || declared.url.is_none() => return None,
        (_, Some(_)) => missing.form = Some(Settings::default()),
    }
    Some(missing)
}

fn sampling_missing(
    declared: Option<&SamplingCapability>,
    params: &Params<'_>,
) -> Option<SamplingCapability> {
    let with_tools = params.tools.is_some() || params.tool_choice.is_some();
    let context = params.include_context.as_deref();
    let with_context = context.is_some_and(|context| context != "none");
    let mut missing = SamplingCapability::default();
    if with_tools && declared.is_none_or(|declared| declared.tools.is_none()) {
        missing.tools = Some(Settings::default());
    }
    if with_context && declared.is_none_or(|declared| declared.context.is_none()) {
        missing.context = Some(Settings::default());
    }
    (declared.is_none() || missing != SamplingCapability::default()).then_some(missing)
}

/// Those params, of any kind of question, that decide which capability it needs.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    mode: Option<Cow<'a, str>>,
    tools: Option<Json>,
    tool_choice: Option<Json>,
    #[serde(borrow)]
    include_context: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Elicited {
    action: String,
    content: Option<Json>,
}

impl Elicited {
    fn is_sound(&self) -> bool {
        matches!(&*self.action, "accept" | "decline" | "cancel")
            && self.content.as_ref().is_none_or(Json::is_object)
    }
}

#[derive(Deserialize)]
struct Sampled {
    role: String,
    #[serde(rename = "model")]
    _model: String,
    content: Json,
}

impl Sampled {
    fn is_sound(&self) -> bool {
        matches!(&*self.role, "user" | "assistant")
            && (self.content.is_object() || is_list(&self.content))
    }
}

#[derive(Deserialize)]
struct Rooted {
    roots: Json,
}

impl Rooted {
    fn is_sound(&self) -> bool {
        is_list(&self.roots)
    }
}

fn is_list(json: &Json) -> bool {
    json.as_bytes().first() == Some(&b'[')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &'static str) -> Json {
        Json::parse(text).unwrap()
    }

    /// What is missing, or `""`.
    fn missing(kind: Kind, params: &'static str, declared: &'static str) -> String {
        let question = Question::new(kind, Some(json(params)));
        question
            .check_capabilities(&json(declared).decode().unwrap())
            .map_or_else(|error| error.to_json().to_string(), |()| String::new())
    }

    #[test]
    fn a_form_may_be_shown_to_a_client_that_names_no_mode_or_names_form() {
        let form = r#"{"message":"?","requestedSchema":{}}"#;

        assert_eq!(
            missing(Kind::Elicitation, form, r#"{"elicitation":{}}"#),
            ""
        );
        assert_eq!(
            missing(Kind::Elicitation, form, r#"{"elicitation":{"form":{}}}"#),
            ""
        );
        assert_eq!(
            missing(Kind::Elicitation, form, r#"{"elicitation":{"url":{}}}"#),
            r#"{"elicitation":{"form":{}}}"#
        );
        assert_eq!(
            missing(Kind::Elicitation, form, "{}"),
            r#"{"elicitation":{}}"#
        );
    }

    #[test]
    fn a_url_may_be_shown_only_to_a_client_that_names_url() {
        let url = r#"{"mode":"url","message":"?","url":"https://example.com"}"#;
        let required = r#"{"elicitation":{"url":{}}}"#;

        assert_eq!(
            missing(Kind::Elicitation, url, r#"{"elicitation":{"url":{}}}"#),
            ""
        );
        for declared in [
            "{}",
            r#"{"elicitation":{}}"#,
            r#"{"elicitation":{"form":{}}}"#,
            r#"{"elicitation":null}"#,
        ] {
            assert_eq!(missing(Kind::Elicitation, url, declared), required);
        }
    }

    #[test]
    fn sampling_with_tools_or_context_needs_more_than_sampling() {
        let plain = r#"{"messages":[],"maxTokens":1,"includeContext":"none"}"#;
        let both = r#"{"messages":[],"maxTokens":1,"tools":[],"includeContext":"thisServer"}"#;
        let choice = r#"{"messages":[],"maxTokens":1,"toolChoice":{}}"#;
        let declared = r#"{"sampling":{}}"#;

        assert_eq!(missing(Kind::Sampling, plain, declared), "");
        assert_eq!(missing(Kind::Sampling, plain, "{}"), r#"{"sampling":{}}"#);
        assert_eq!(
            missing(Kind::Sampling, both, declared),
            r#"{"sampling":{"context":{},"tools":{}}}"#
        );
        assert_eq!(
            missing(Kind::Sampling, choice, declared),
            r#"{"sampling":{"tools":{}}}"#
        );
        assert_eq!(
            missing(
                Kind::Sampling,
                both,
                r#"{"sampling":{"tools":{},"context":{}}}"#
            ),
            ""
        );
    }

    #[test]
    fn the_client_is_told_which_capability_is_missing() {
        let question = Question::new(Kind::Roots, None);

        let error = question
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
    fn an_answer_is_judged_by_the_kind_of_its_question() {
        let accepted = json(r#"{"action":"accept","content":{"n":1}}"#);
        let declined = json(r#"{"action":"decline"}"#);
        let sampled = json(r#"{"role":"assistant","model":"m","content":[]}"#);
        let roots = json(r#"{"roots":[]}"#);

        assert!(Kind::Elicitation.check_answer(&accepted).is_ok());
        assert!(Kind::Elicitation.check_answer(&declined).is_ok());
        assert!(Kind::Sampling.check_answer(&sampled).is_ok());
        assert!(Kind::Roots.check_answer(&roots).is_ok());
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
            for kind in [Kind::Elicitation, Kind::Sampling, Kind::Roots] {
                assert!(kind.check_answer(&wrong).is_err(), "{kind} took {wrong}");
            }
        }
    }

    #[test]
    fn a_legacy_request_and_a_question_are_the_same_thing() {
        let question = Question::new(Kind::Sampling, Some(json(r#"{"maxTokens":1}"#)));

        let (method, params) = question.clone().into_request();

        assert_eq!(method, "sampling/createMessage");
        assert_eq!(Question::from_request(method, params), Some(question));
        assert_eq!(Question::from_request("tools/call", None), None);
    }

    #[test]
    fn a_question_is_decoded_by_its_method() {
        let roots = Question::new(Kind::Roots, None);
        let vague = Question::new(Kind::Sampling, Some(Json::empty_object()));

        assert_eq!(
            roots.to_input_request().unwrap(),
            InputRequest::ListRoots(None)
        );
        assert!(vague.to_input_request().is_err());
    }
}
