//! Legacy requests without a session: each is answered as if it were the only one.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use ::http::request::Parts;
use ::http::{Response, StatusCode};
use bowline_core::era::{Admitted, Dialect, Rejection as Refused, legacy as era};
use bowline_core::http::admission::Rejection;
use bowline_core::http::legacy::{Messages, Post};
use bowline_core::http::media::Accepts;
use bowline_core::{Malformed, Message, Outcome, RawRequest};
use bowline_types::{ErrorCode, RequestId, RpcError};
use bytes::Bytes;
use http_body_util::BodyExt as _;

use super::response::array;
use super::{INITIALIZE, refusals};
use crate::exchange::BoxFuture;
use crate::http::server::{Handling, HttpBody, Site, Taken, body};
use crate::limits::Charge;

/// Answers what a legacy client posted.
pub(super) fn answer(
    site: &Arc<Site>,
    head: Parts,
    accepts: Accepts,
    post: Post,
    charge: Charge,
) -> Result<Taken, Rejection> {
    let dialect = post.dialect.unwrap_or(Dialect::UNNAMED_ON_HTTP);
    match post.messages {
        Messages::One(Message::Request(raw)) => {
            answer_request(site, head, accepts, dialect, raw, charge)
        }
        // A cancel would have to be matched within a session, so it is dropped like the rest.
        Messages::One(Message::Notification(_)) => {
            Ok(Taken::Now(body::empty(StatusCode::ACCEPTED)))
        }
        Messages::One(Message::Response(_)) => Err(invalid("nobody asked for this response")),
        Messages::Batch(parts) => {
            let site = site.clone();
            let answers = async move {
                let answered = answer_batch(&site, &head, dialect, parts).await;
                drop(charge);
                Ok(answered)
            };
            Ok(Taken::Elsewhere(Box::pin(answers)))
        }
    }
}

fn answer_request(
    site: &Arc<Site>,
    head: Parts,
    accepts: Accepts,
    dialect: &'static Dialect,
    raw: RawRequest,
    charge: Charge,
) -> Result<Taken, Rejection> {
    let id = raw.id.clone();
    match admit(site, dialect, raw) {
        Ok(Admitted::Request { request, seal }) => {
            let handling = Handling::new(site, id, request, seal, head, charge);
            Ok(Taken::Inside(handling.respond(accepts)))
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

/// Answers the requests of a batch side by side, and what is malformed in it, by one array.
async fn answer_batch(
    site: &Arc<Site>,
    head: &Parts,
    dialect: &'static Dialect,
    parts: Vec<Result<Message, Malformed>>,
) -> Response<HttpBody> {
    let mut answers = refusals(&parts);
    let requests = parts.into_iter().filter_map(|part| match part {
        Ok(Message::Request(raw)) => Some(raw),
        Ok(Message::Notification(_) | Message::Response(_)) | Err(_) => None,
    });
    let answering = requests.map(|raw| -> BoxFuture<'_, Bytes> {
        let answering = site
            .charge(head)
            .and_then(|charge| answer_request(site, head.clone(), ONLY_JSON, dialect, raw, charge));
        Box::pin(async {
            let answered = match answering {
                Ok(answering) => answering.await,
                Err(refused) => Err(refused),
            };
            whole(answered.unwrap_or_else(body::rejection)).await
        })
    });
    answers.extend(all(answering.collect()).await);
    if answers.is_empty() {
        return body::empty(StatusCode::ACCEPTED);
    }
    body::whole(StatusCode::OK, array(&answers))
}

/// Runs futures side by side to their ends.
async fn all<T>(futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(Some).collect();
    let mut done = Vec::new();
    poll_fn(|cx| {
        for slot in &mut running {
            if let Some(future) = slot
                && let Poll::Ready(value) = future.as_mut().poll(cx)
            {
                done.push(value);
                *slot = None;
            }
        }
        match running.iter().all(Option::is_none) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    done
}

async fn whole(response: Response<HttpBody>) -> Bytes {
    let Ok(body) = response.into_body().collect().await;
    body.to_bytes()
}

fn admit(site: &Site, dialect: &'static Dialect, raw: RawRequest) -> Result<Admitted, Refused> {
    let mut offers = site.offers;
    offers.subscriptions = false;
    if raw.method == INITIALIZE {
        return era::open(&raw, &site.served, offers).map(|(_, admitted)| admitted);
    }
    era::Session::without_handshake(dialect, offers).admit(raw, &site.served)
}

fn at_once(id: RequestId, outcome: Outcome) -> Taken {
    Taken::Now(body::answer(StatusCode::OK, id, (outcome, None)))
}

fn invalid(why: &str) -> Rejection {
    RpcError::new(ErrorCode::INVALID_REQUEST, why).into()
}

/// The answers of a batch come together, so that none of them can be a stream.
const ONLY_JSON: Accepts = Accepts {
    json: true,
    events: false,
};
