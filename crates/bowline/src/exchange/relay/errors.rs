//! The errors of an upstream, as the front of a [`Relay`](super::Relay) must see them.

use bowline_core::era::{InputMechanism, Request, fit_question};
use bowline_core::input::{InputKind, RawInputRequest, check_url};
use bowline_core::json::{Object, pick};
use bowline_types::{ErrorCode, Json, RpcError};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Relay;
use crate::Result;
use crate::exchange::{Answer, Context};

/// Converts an error of the upstream. Some become an answer.
pub(super) fn convert(error: RpcError, method: &str, cx: &Context) -> Result<Answer> {
    match error.code {
        // The front sent neither the headers nor the version that the upstream refused.
        ErrorCode::HEADER_MISMATCH | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
            let why = format!("failed to reach the server: {}", error.message);
            Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why).into())
        }
        ErrorCode::URL_ELICITATION_REQUIRED => url_elicitation(error, method, cx),
        _ => Err(error.into()),
    }
}

/// Converts -32042 for a front whose version has `input_required` results.
fn url_elicitation(error: RpcError, method: &str, cx: &Context) -> Result<Answer> {
    let dialect = cx.caller().dialect;
    let may_ask =
        dialect.input_mechanism == InputMechanism::InputRequired && dialect.may_need_input(method);
    let questions = error.data.as_ref().and_then(elicitations);
    let Some(questions) = questions.filter(|_| may_ask) else {
        return Err(error.into());
    };
    let mut input_requests = Vec::with_capacity(questions.len());
    for (at, params) in questions.into_iter().enumerate() {
        let question = RawInputRequest::new(InputKind::Elicitation, Some(params));
        let Ok(question) = fit_question(dialect, question) else {
            return Err(error.into());
        };
        let declared = &cx.caller().capabilities;
        if let Err(missing) = question.check_capabilities(declared) {
            return Err(missing.to_rpc_error().into());
        }
        input_requests.push((format!("url-{}", at + 1), question.to_json()));
    }
    let input_requests = Json::object(input_requests.iter().map(|(key, it)| (&**key, it)));
    let mut result = Object::default();
    result.set("resultType", Value::from("input_required").into());
    result.set("inputRequests", input_requests);
    result.set("requestState", Value::from(Relay::SEND_AGAIN).into());
    Ok(Answer::InputRequired(result.to_json()))
}

/// Returns the params of each URL elicitation in the data of the error; `None` if there is none, or one is invalid.
fn elicitations(data: &Json) -> Option<Vec<Json>> {
    let [list] = pick(data, ["elicitations"]).ok()?;
    let list = list?;
    let each: Vec<&RawValue> = list.decode().ok()?;
    let mut params = Vec::with_capacity(each.len());
    for element in each {
        let element = list.part(element);
        let question = RawInputRequest::new(InputKind::Elicitation, Some(element.clone()));
        let [url] = pick(&element, ["url"]).ok()?;
        let url: String = url?.decode().ok()?;
        if !question.is_url() || check_url(&url).is_err() {
            return None;
        }
        params.push(element);
    }
    (!params.is_empty()).then_some(params)
}

/// Removes the state [`Relay::SEND_AGAIN`] and its answers from a request.
///
/// # Errors
///
/// If the user did not consent to open each URL: the upstream would refuse the request again.
pub(super) fn take_consent(request: &mut Request) -> Result<(), RpcError> {
    let state = request.params.member("requestState").ok().flatten();
    if state.is_none_or(|state| state.decode::<&str>().ok() != Some(Relay::SEND_AGAIN)) {
        return Ok(());
    }
    let Ok(mut params) = Object::read(&request.params) else {
        return Ok(());
    };
    params.remove("requestState");
    let answers = params.remove("inputResponses");
    let answers: Value = answers.and_then(|it| it.decode().ok()).unwrap_or(json!({}));
    let mut answers = answers.as_object().into_iter().flatten();
    if answers.any(|(_, answer)| answer["action"] != "accept") {
        let why = "the user did not agree to open a URL that the server requires";
        return Err(RpcError::new(ErrorCode::USER_REJECTED, why));
    }
    let params = params.to_json();
    request.params = params.into();
    Ok(())
}
