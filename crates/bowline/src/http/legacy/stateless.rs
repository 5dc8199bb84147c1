//! Legacy requests without a session: each is answered as if it were the only one.

use std::sync::Arc;

use ::http::request::Parts;
use ::http::{Response, StatusCode};
use bowline_core::era::{Admitted, Dialect, Rejection as Refused, legacy as era};
use bowline_core::http::admission::Rejection;
use bowline_core::http::legacy::{Messages, Post};
use bowline_core::http::media::Accepts;
use bowline_core::{self as core, Malformed, Message, Outcome, RawRequest};
use bowline_types::{ErrorCode, RequestId, RpcError};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use super::response::array;
use super::streams::SHORT_ANSWER;
use super::{INITIALIZE, decode, refusals};
use crate::http::server::body::charged;
use crate::http::server::{Handling, HttpBody, Site, Taken, body, overloaded};
use crate::limits::{Account, Charge, Held, Limit};

/// Answers what a legacy client posted.
pub(super) fn answer(
    site: &Arc<Site>,
    head: Parts,
    accepts: Accepts,
    post: Post,
    mut charge: Charge,
    head_bytes: usize,
) -> Result<Taken, Rejection> {
    let dialect = post.dialect.unwrap_or(Dialect::UNNAMED_ON_HTTP);
    match post.messages {
        Messages::One(Message::Request(raw)) => {
            answer_request(site, Arc::new(head), accepts, dialect, raw, charge)
        }
        // A cancel would have to be matched within a session, so it is dropped like the rest.
        Messages::One(Message::Notification(_)) => {
            Ok(Taken::Now(body::empty(StatusCode::ACCEPTED)))
        }
        Messages::One(Message::Response(_)) => Err(invalid("nobody asked for this response")),
        Messages::Batch(batch) => {
            let parts = decode(site, &batch)?;
            let batch = Batch {
                site: site.clone(),
                head: Arc::new(head),
                dialect,
                _head_charge: charge.split(head_bytes),
                account: charge.account().clone(),
            };
            // From here on each request is charged by itself.
            drop(charge);
            let answers = async move { Ok(batch.answer(parts).await) };
            Ok(Taken::Elsewhere(Box::pin(answers)))
        }
    }
}

fn answer_request(
    site: &Arc<Site>,
    head: Arc<Parts>,
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

/// The requests of one POST that has several.
struct Batch {
    site: Arc<Site>,
    head: Arc<Parts>,
    dialect: &'static Dialect,
    _head_charge: Charge,
    account: Arc<Account>,
}

impl Batch {
    /// Answers the requests side by side, and what is malformed, by one array.
    ///
    /// # Cancel safety
    ///
    /// Dropping it lets go of every request, as closing its own response would.
    async fn answer(self, parts: Vec<Result<Message, Malformed>>) -> Response<HttpBody> {
        let mut answers = refusals(&parts);
        let mut length = answers.iter().map(Bytes::len).sum();
        let mut charge = self.account.nothing(Held::Output);
        // Tasks, for each is polled only when it is woken itself.
        let mut running = JoinSet::new();
        for part in parts {
            if let Ok(Message::Request(raw)) = part {
                running.spawn(self.answer_one(raw));
            }
        }
        while let Some(answered) = running.join_next().await {
            // One that is at its end without an answer was dropped with the runtime.
            let Ok((id, answer)) = answered else { continue };
            let (answer, more) = self.within_limit(id, answer, length, &mut charge);
            length += more;
            answers.push(answer);
        }
        if answers.is_empty() {
            return body::empty(StatusCode::ACCEPTED);
        }
        body::whole(StatusCode::OK, charged(array(&answers), Some(charge)))
    }

    fn answer_one(&self, raw: RawRequest) -> impl Future<Output = (RequestId, Bytes)> + 'static {
        let id = raw.id.clone();
        let params = raw.params.as_ref();
        let size = params.map_or(0, |params| params.as_bytes().len());
        let answering = self
            .account
            .request(PER_REQUEST + size)
            .map_err(overloaded)
            .and_then(|charge| {
                let head = self.head.clone();
                answer_request(&self.site, head, ONLY_JSON, self.dialect, raw, charge)
            })
            .map_err(|refused| refused.about(id.clone()));
        async move {
            let answered = match answering {
                Ok(answering) => answering.await,
                Err(refused) => Err(refused),
            };
            let answer = whole(answered.unwrap_or_else(body::rejection)).await;
            (id, answer)
        }
    }

    /// An answer that is charged, or a short error in its place if all answers together get too long.
    fn within_limit(
        &self,
        id: RequestId,
        answer: Bytes,
        length: usize,
        charge: &mut Charge,
    ) -> (Bytes, usize) {
        if answer.len() <= SHORT_ANSWER {
            return (answer, 0);
        }
        let max = self.account.limits().output_bytes;
        let reached = if length > 0 && length + answer.len() > max {
            self.account.meters().refuse(Limit::OutputBytes, max)
        } else {
            match charge.grow(answer.len()) {
                Ok(()) => {
                    let length = answer.len();
                    return (answer, length);
                }
                Err(reached) => reached,
            }
        };
        let refusal = core::Response {
            id: Some(id),
            outcome: Err(reached.into()),
        };
        (Message::from(refusal).to_frame(), 0)
    }
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

/// What the state of a request takes up: its task, its context.
const PER_REQUEST: usize = 2048;
/// The answers of a batch come together, so that none of them can be a stream.
const ONLY_JSON: Accepts = Accepts {
    json: true,
    events: false,
};
