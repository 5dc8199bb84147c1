//! Legacy requests without a session: each is answered as if it were the only one.

use ::http::request::Parts;
use ::http::{Response, StatusCode};
use bowline_core::era::{Admitted, Dialect, Rejection as Refused, legacy as era};
use bowline_core::http::admission::Rejection;
use bowline_core::http::legacy::{Messages, Post};
use bowline_core::http::media::Accepts;
use bowline_core::{self as core, Message, Outcome, RawRequest};
use bowline_types::{ErrorCode, RequestId, RpcError};

use super::INITIALIZE;
use crate::http::server::{Handling, HttpBody, Site, body};

/// Answers what a legacy client posted.
pub(super) async fn answer(
    site: &Site,
    head: Parts,
    accepts: Accepts,
    post: Post,
) -> Result<Response<HttpBody>, Rejection> {
    let dialect = post.dialect.unwrap_or(Dialect::UNNAMED_ON_HTTP);
    let raw = match post.messages {
        Messages::One(Message::Request(raw)) => raw,
        // A cancel would have to be matched within a session, so it is dropped like the rest.
        Messages::One(Message::Notification(_)) => return Ok(body::empty(StatusCode::ACCEPTED)),
        Messages::One(Message::Response(_)) => {
            return Err(invalid("nobody asked for this response"));
        }
        Messages::Batch(_) => return Err(invalid("a message is one JSON object")),
    };
    let id = raw.id.clone();
    match admit(site, dialect, raw) {
        Ok(Admitted::Request { request, seal }) => {
            let permit = site.permit().map_err(|refused| refused.about(id.clone()))?;
            let handling = Handling::new(site, id, request, seal, head, permit);
            Ok(handling.respond(accepts).await)
        }
        Ok(Admitted::Answer(result)) => Ok(at_once(id, Ok(result))),
        Ok(Admitted::Watch(_) | Admitted::Unwatch(_)) => {
            let why = "nobody can be told of changes without a session";
            Ok(at_once(
                id,
                Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, why)),
            ))
        }
        // Status 404 would mean that there is no such session.
        Err(refused) => Ok(at_once(id, Err(refused.into()))),
    }
}

fn admit(site: &Site, dialect: &'static Dialect, raw: RawRequest) -> Result<Admitted, Refused> {
    let mut offers = site.offers;
    offers.subscriptions = false;
    if raw.method == INITIALIZE {
        return era::open(&raw, &site.served, offers).map(|(_, admitted)| admitted);
    }
    era::Session::without_handshake(dialect, offers).admit(raw, &site.served)
}

fn at_once(id: RequestId, outcome: Outcome) -> Response<HttpBody> {
    let answer = core::Response {
        id: Some(id),
        outcome,
    };
    body::json(StatusCode::OK, &answer.into())
}

fn invalid(why: &str) -> Rejection {
    RpcError::new(ErrorCode::INVALID_REQUEST, why).into()
}
