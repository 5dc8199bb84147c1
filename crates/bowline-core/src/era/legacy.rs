//! The legacy era: `initialize` first, then both sides remember.
//!
//! [`Session`] is what a server remembers; it supplies the [`Caller`] that legacy requests do not name.
//! [`Adapter`] gives and takes messages in the forms of one legacy dialect.
//!
//! ```text
//! (nothing) ── initialize ──▶ Opening ── notifications/initialized ──▶ Ready
//!                               │  ▲
//!                               └──┘ initialize (again: renegotiates)
//! ```
//!
//! This file can be replaced by `legacy_stub.rs`, which proves that nothing outside it relies on it.

use std::sync::Arc;

use bowline_types::{
    CacheScope, ErrorCode, Implementation, InitializeRequestParams, Json, LoggingLevel, ResultType,
    RpcError, SetLevelRequestParams, meta_key,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::modern::{self, Keys};
use super::text::{edit_meta, encode, own};
use super::{
    Admitted, Caller, Dialect, Dialects, Era, Heard, Offers, Rejection, Request, Seal, Stamped,
    StructuredContent, Unsealed, Violation, unsendable,
};
use crate::json::Object;
use crate::{Notification, Outcome, RawRequest};

/// What a server remembers of one legacy client.
#[derive(Clone, Debug)]
pub struct Session {
    caller: Arc<Caller>,
    stage: Stage,
    offers: Offers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `initialize` was admitted; whether its answer pleases the client is not known yet.
    Opening,
    Ready,
}

/// Admits a request without a modern envelope where no handshake took place yet.
///
/// # Errors
///
/// Unless it is `initialize` or `ping`, and legacy versions are served at all.
pub fn open(
    raw: &RawRequest,
    served: &Dialects,
    offers: Offers,
) -> Result<(Era, Admitted), Rejection> {
    match &*raw.method {
        "initialize" => {
            let (caller, admitted) = shake_hands(raw, served)?;
            let session = Session {
                caller: Arc::new(caller),
                stage: Stage::Opening,
                offers,
            };
            Ok((Era::Legacy(session), admitted))
        }
        "ping" if served.latest_legacy().is_some() => {
            Ok((Era::Modern, Admitted::Answer(Json::empty_object())))
        }
        _ => Err(modern::no_envelope(served)),
    }
}

impl Session {
    /// The conversation with a client that never shook hands, of whom only the version is known.
    #[must_use]
    pub fn without_handshake(dialect: &'static Dialect, offers: Offers) -> Self {
        let caller = Caller {
            log_level: Some(LEVEL_UNTIL_SET),
            ..Caller::new(dialect)
        };
        Self {
            caller: Arc::new(caller),
            stage: Stage::Ready,
            offers,
        }
    }

    /// Who is asking, with the log level as it was last set.
    #[must_use]
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Whether the client said `notifications/initialized`; until then only pings and logs may be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// Lets a request in, or says why not.
    ///
    /// A second `initialize` renegotiates as long as the client has not said that it is ready, so that a
    /// client whose first attempt failed can try again. After that it is refused.
    ///
    /// # Errors
    ///
    /// If the request is ill-formed, or its method belongs to other versions or is not offered.
    pub fn admit(&mut self, raw: RawRequest, served: &Dialects) -> Result<Admitted, Rejection> {
        match &*raw.method {
            "initialize" if self.stage == Stage::Opening => {
                let (caller, admitted) = shake_hands(&raw, served)?;
                self.caller = Arc::new(caller);
                Ok(admitted)
            }
            "initialize" => Err(Rejection::new(
                ErrorCode::INVALID_REQUEST,
                "`initialize` was already answered",
            )),
            "ping" => Ok(Admitted::Answer(Json::empty_object())),
            "logging/setLevel" if self.offers.logging => {
                let wish: SetLevelRequestParams = params_of(&raw)?;
                let mut caller = Caller::clone(&self.caller);
                caller.log_level = Some(wish.level);
                self.caller = Arc::new(caller);
                Ok(Admitted::Answer(Json::empty_object()))
            }
            "resources/subscribe" if self.offers.subscriptions => {
                params_of(&raw).map(|Target { uri }| Admitted::Watch(uri))
            }
            "resources/unsubscribe" if self.offers.subscriptions => {
                params_of(&raw).map(|Target { uri }| Admitted::Unwatch(uri))
            }
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
                Err(Rejection::method_not_found(&raw.method))
            }
            method if self.caller.dialect.lacks_request(method) => {
                Err(Rejection::method_not_found(method))
            }
            _ => admit_as(&self.caller, raw),
        }
    }

    /// Takes note of a client's notification.
    pub fn hear(&mut self, notification: &Notification) -> Heard {
        match &*notification.method {
            "notifications/initialized" if self.stage == Stage::Opening => {
                self.stage = Stage::Ready;
                Heard::Initialized
            }
            "notifications/initialized" => Heard::Nothing,
            "notifications/roots/list_changed" => Heard::RootsListChanged,
            _ => Heard::Other,
        }
    }
}

/// Gives and takes messages in the forms of one legacy dialect.
#[derive(Clone, Copy, Debug)]
pub struct Adapter(&'static Dialect);

impl Adapter {
    /// The adapter of a dialect, if it is a legacy one.
    #[must_use]
    pub fn of(dialect: &'static Dialect) -> Option<Self> {
        (!dialect.is_modern()).then_some(Self(dialect))
    }

    pub(super) fn stamp(self, request: &Request) -> Stamped {
        let Ok(mut params) = Object::read(&request.params) else {
            return Stamped {
                method: request.method.clone(),
                params: Some(request.params.clone()),
            };
        };
        edit_meta(&mut params, |meta| {
            for key in ENVELOPE {
                meta.remove(key);
            }
            let progress_token = request.progress_token.as_ref().map(encode);
            own(meta, meta_key::PROGRESS_TOKEN, progress_token);
        });
        let mut method = request.method.clone();
        if method == OPENING {
            method = "initialize".into();
            params.set("protocolVersion", encode(self.0.version));
            params.set("capabilities", encode(&request.caller.capabilities));
            params.set("clientInfo", client_of(&request.caller));
        }
        Stamped {
            method,
            params: (!params.is_empty()).then(|| params.to_json()),
        }
    }

    pub(super) fn unseal(self, method: &str, result: Json) -> Result<Unsealed, Violation> {
        if method != OPENING {
            return Ok(Unsealed::Complete(result));
        }
        let mut introduction = Object::read(&result).map_err(|_| Violation::ResultIsNotAnObject)?;
        let version: String = introduction
            .remove("protocolVersion")
            .and_then(|version| version.decode().ok())
            .ok_or(Violation::BadHandshake("protocolVersion"))?;
        // A modern version has no handshake, so it cannot come out of one.
        if Dialect::of(&version).is_none_or(Dialect::is_modern) {
            return Err(Violation::UnspeakableVersion(version));
        }
        let server = introduction
            .remove("serverInfo")
            .filter(Json::is_object)
            .ok_or(Violation::BadHandshake("serverInfo"))?;
        if !introduction
            .member("capabilities")
            .is_some_and(Json::is_object)
        {
            return Err(Violation::BadHandshake("capabilities"));
        }
        introduction.set("resultType", encode(&ResultType::COMPLETE));
        introduction.set("supportedVersions", encode(&[version]));
        introduction.set("ttlMs", encode(&0));
        introduction.set("cacheScope", encode(&CacheScope::PRIVATE));
        edit_meta(&mut introduction, |meta| {
            meta.set(meta_key::SERVER_INFO, server);
        });
        Ok(Unsealed::Complete(introduction.to_json()))
    }

    pub(super) fn seal(self, method: &str, server: &Json, outcome: Outcome) -> Outcome {
        let result = outcome.map_err(|error| self.seal_error(error))?;
        let mut object =
            Object::read(&result).map_err(|_| unsendable("the result is not an object"))?;
        match object.remove("resultType") {
            None => {}
            Some(of) if of == encode(&ResultType::COMPLETE) => {}
            Some(_) => return Err(unsendable("the caller's version has complete results only")),
        }
        for name in ["ttlMs", "cacheScope"] {
            object.remove(name);
        }
        let mut own_server = None;
        edit_meta(&mut object, |meta| {
            own_server = meta.remove(meta_key::SERVER_INFO);
            meta.remove(meta_key::SUBSCRIPTION_ID);
        });
        match method {
            OPENING => {
                object.remove("supportedVersions");
                object.set("protocolVersion", encode(self.0.version));
                object.set("serverInfo", own_server.unwrap_or_else(|| server.clone()));
            }
            "tools/call" if !self.can_hold(object.member("structuredContent")) => {
                object.remove("structuredContent");
            }
            "tools/list" => self.fit_tools(&mut object),
            _ => {}
        }
        Ok(object.to_json())
    }

    pub(super) fn tell(self, mut notification: Notification) -> Notification {
        let params = notification.params.take();
        let Some(params) = params else {
            return notification;
        };
        let Ok(mut object) = Object::read(&params) else {
            notification.params = Some(params);
            return notification;
        };
        edit_meta(&mut object, |meta| {
            meta.remove(meta_key::SUBSCRIPTION_ID);
        });
        notification.params = (!object.is_empty()).then(|| object.to_json());
        notification
    }

    pub(super) fn admit_from_server(
        self,
        server: &Arc<Caller>,
        raw: RawRequest,
    ) -> Result<Admitted, Rejection> {
        match &*raw.method {
            "ping" => Ok(Admitted::Answer(Json::empty_object())),
            method if self.0.lacks_server_request(method) => {
                Err(Rejection::method_not_found(method))
            }
            _ => admit_as(server, raw),
        }
    }

    pub(super) fn initialized(self) -> Notification {
        Notification::new("notifications/initialized", None)
    }

    /// The codes that only the modern era knows say that the request asks too much of this caller.
    fn seal_error(self, mut error: RpcError) -> RpcError {
        error.code = match error.code {
            ErrorCode::RESOURCE_NOT_FOUND => self.0.missing_resource,
            ErrorCode::HEADER_MISMATCH
            | ErrorCode::MISSING_CLIENT_CAPABILITY
            | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => ErrorCode::INVALID_PARAMS,
            code => code,
        };
        error
    }

    fn can_hold(self, structured: Option<&Json>) -> bool {
        match self.0.structured_content {
            StructuredContent::Absent => false,
            StructuredContent::Object => structured.is_none_or(Json::is_object),
            StructuredContent::Any => true,
        }
    }

    /// Takes away output schemas of tools whose output, not being an object, has no form here: a strict
    /// client would refuse the whole list for one of them.
    fn fit_tools(self, list: &mut Object<'_>) {
        let Some(tools) = list.member("tools").cloned() else {
            return;
        };
        let Ok(each) = tools.decode::<Vec<&RawValue>>() else {
            return;
        };
        let mut fitted = Vec::new();
        let mut changed = false;
        for tool in each {
            let tool = tools.part(tool);
            match Object::read(&tool) {
                Ok(mut object) if has_unfit_output(&object) => {
                    object.remove("outputSchema");
                    fitted.push(object.to_json());
                    changed = true;
                }
                _ => fitted.push(tool),
            }
        }
        if changed {
            list.set("tools", encode(&fitted));
        }
    }
}

/// Negotiates: the offered version if it is served, else our latest; never a modern one, for that has no
/// handshake.
fn shake_hands(raw: &RawRequest, served: &Dialects) -> Result<(Caller, Admitted), Rejection> {
    let Some(latest) = served.latest_legacy() else {
        return Err(modern::no_handshake(raw.params.as_ref(), served));
    };
    let offer: InitializeRequestParams = params_of(raw)?;
    let dialect = served
        .of(offer.protocol_version.as_str())
        .filter(|dialect| !dialect.is_modern())
        .unwrap_or(latest);
    let caller = Caller {
        dialect,
        implementation: Some(offer.client_info),
        capabilities: offer.capabilities,
        log_level: Some(LEVEL_UNTIL_SET),
    };
    let discover = RawRequest {
        id: raw.id.clone(),
        method: OPENING.into(),
        params: only_meta(raw.params.as_ref()),
    };
    let admitted = admit_as(&Arc::new(caller.clone()), discover)?;
    Ok((caller, admitted))
}

fn admit_as(caller: &Arc<Caller>, raw: RawRequest) -> Result<Admitted, Rejection> {
    let params = raw.params.unwrap_or_else(Json::empty_object);
    let progress_token = Keys::read(&params)?.progress_token()?;
    let seal = Seal::new(caller.dialect, raw.method.clone());
    let request = Request {
        method: raw.method,
        params,
        caller: Arc::clone(caller),
        progress_token,
    };
    Ok(Admitted::Request { request, seal })
}

fn params_of<'a, T: Deserialize<'a>>(raw: &'a RawRequest) -> Result<T, Rejection> {
    let wrong = || Rejection::invalid_params(format!("`{}` has ill-formed params", raw.method));
    let params = raw.params.as_ref().ok_or_else(wrong)?;
    params.decode().map_err(|_| wrong())
}

fn only_meta(params: Option<&Json>) -> Option<Json> {
    let params = Object::read(params?).ok()?;
    let mut kept = Object::default();
    kept.set("_meta", params.member("_meta")?.clone());
    Some(kept.to_json())
}

/// `initialize` must say who is asking, even for a client that would rather not.
fn client_of(caller: &Caller) -> Json {
    match &caller.implementation {
        Some(implementation) => encode(implementation),
        None => encode(&Implementation::new("anonymous", "0")),
    }
}

fn has_unfit_output(tool: &Object<'_>) -> bool {
    #[derive(Deserialize)]
    struct Schema {
        #[serde(rename = "type")]
        of: String,
    }

    tool.member("outputSchema")
        .is_some_and(|schema| !schema.decode().is_ok_and(|Schema { of }| of == "object"))
}

/// The params of `resources/subscribe` and `resources/unsubscribe`.
#[derive(Deserialize)]
struct Target {
    uri: String,
}

/// The inside name of `initialize`.
const OPENING: &str = "server/discover";

/// "If no `logging/setLevel` request has been sent", the server chooses: everything.
const LEVEL_UNTIL_SET: LoggingLevel = LoggingLevel::Debug;

/// What only modern requests say, and must not leak into legacy ones.
const ENVELOPE: [&str; 4] = [
    meta_key::PROTOCOL_VERSION,
    meta_key::CLIENT_INFO,
    meta_key::CLIENT_CAPABILITIES,
    meta_key::LOG_LEVEL,
];
