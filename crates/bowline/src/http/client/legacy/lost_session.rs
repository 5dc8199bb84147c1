//! Detects that a server no longer knows a session.
//!
//! ```text
//! 404 ─────────────────────────────────────────▶ lost
//! 400 that may refuse the session ──▶ `ping` ──┬─▶ refused too: lost
//!                                              └─▶ answered: the 400 is the answer to the request
//! ```
//!
//! The specification requires 404, but the examples of the official SDKs answer 400, and servers are copied from them.
//! Such a response shows that the request was not run. It does not show that the session is gone, which a `ping` does:
//! to open another session for a request that is refused for another reason would end the calls and the state of the
//! one that exists.

use bowline_core::{CorrelationKey, Message, RawRequest};
use bowline_types::{ErrorCode, Method as _, PingRequest, RequestId};
use http::StatusCode;

use super::session::WireSession;
use super::wire_state::WireState;
use crate::Result;
use crate::exchange::{TimeoutPause, timeout_with_pauses};
use crate::http::client::RefusalPolicy;
use crate::http::client::response::{ResponseContent, message, read};
use crate::http::client::send::SendState;

impl WireState {
    /// Returns whether the server has lost `session`, after a response that [may refuse](may_refuse_session) it.
    pub(super) async fn has_lost(&self, session: &WireSession) -> bool {
        let current = self.current();
        // If it is not the current one, another request has found out.
        current.is_none_or(|current| current.number != session.number)
            || matches!(self.session_exists(session).await, Ok(false))
    }

    /// Returns whether the session still exists at the server, by sending a `ping`.
    pub(super) async fn session_exists(&self, session: &WireSession) -> Result<bool> {
        let id = RequestId::from(PING_ID);
        let ping = RawRequest {
            id: id.clone(),
            method: PingRequest::NAME.into(),
            params: None,
        };
        let (pause, send_state) = (TimeoutPause::default(), SendState::new());
        let frame = Message::from(ping).to_frame();
        let pinging = async {
            let posting = self.post(session, frame, &send_state, RefusalPolicy::Fail);
            let response = posting.await?;
            Ok(match response.status() {
                StatusCode::BAD_REQUEST => {
                    !may_refuse_session(&read(&self.endpoint, response).await?, &id)
                }
                _ => self.endpoint.drain_response(response) != StatusCode::NOT_FOUND,
            })
        };
        timeout_with_pauses(super::POST_LIMIT, &pause, pinging).await
    }
}

/// Returns whether a response to the request `id` may refuse its session: status 400, unless it is an answer to the
/// request with an error code that the request itself must have caused.
pub(super) fn may_refuse_session(content: &ResponseContent, id: &RequestId) -> bool {
    match content {
        ResponseContent::Other(status, _) => *status == StatusCode::BAD_REQUEST,
        ResponseContent::Json(StatusCode::BAD_REQUEST, body) => {
            let Ok(Message::Response(answer)) = message(body) else {
                return true;
            };
            let is_own = |own: &RequestId| CorrelationKey::from(own) == CorrelationKey::from(id);
            !answer.id.as_ref().is_some_and(is_own)
                || (answer.outcome).is_err_and(|error| REFUSAL_CODES.contains(&error.code))
        }
        ResponseContent::Json(..) | ResponseContent::Sse(_) => false,
    }
}

/// The error codes with which servers refuse a session.
const REFUSAL_CODES: [ErrorCode; 2] = [ErrorCode(-32000), ErrorCode::INVALID_REQUEST];
/// The ids of the engine are numbers, so that this string does not collide with them.
const PING_ID: &str = "bowline: is this session known?";
