//! Messages in the forms of one legacy dialect.

use std::sync::Arc;

use bowline_types::{
    CacheScope, Implementation, Json, Notice, ProgressNotification, ResultType, RpcError, meta_key,
};

use super::fit::Fit;
use super::{OPENING, admit_as};
use crate::era::text::{edit_meta, encode, own};
use crate::era::{
    Admitted, Caller, Dialect, Rejection, Request, Stamped, Unsealed, Violation, unsendable,
};
use crate::json::{Members, NotAnObject, Object};
use crate::{Notification, Outcome, RawRequest};

/// Gives and takes messages in the forms of one legacy dialect.
#[derive(Clone, Copy, Debug)]
pub struct Adapter(&'static Dialect);

impl Adapter {
    /// The adapter of a dialect, if it is a legacy one.
    #[must_use]
    pub fn of(dialect: &'static Dialect) -> Option<Self> {
        (!dialect.is_modern()).then_some(Self(dialect))
    }

    pub(in crate::era) fn stamp(self, request: &Request) -> Stamped {
        let Ok(mut params) = Object::read(&request.params) else {
            return Stamped {
                method: request.method.clone(),
                params: Some(Json::clone(&request.params)),
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
            let fit = Fit(self.0);
            let capabilities = encode(&request.caller.capabilities);
            params.set("protocolVersion", encode(self.0.version));
            params.set("capabilities", fit.client_capabilities(capabilities));
            params.set("clientInfo", fit.implementation(client_of(&request.caller)));
        } else {
            Fit(self.0).params(&method, &mut params);
        }
        Stamped {
            method,
            params: (!params.is_empty()).then(|| params.to_json()),
        }
    }

    pub(in crate::era) fn unseal(self, method: &str, result: Json) -> Result<Unsealed, Violation> {
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

    pub(in crate::era) fn seal(self, method: &str, server: &Json, outcome: Outcome) -> Outcome {
        let result = outcome.map_err(|error| self.seal_error(error))?;
        let not_an_object = |_| unsendable("the result is not an object");
        if self.is_bare(method, &result).map_err(not_an_object)? {
            return Ok(result);
        }
        let mut object = Object::read(&result).map_err(not_an_object)?;
        match object.remove("resultType") {
            None => {}
            Some(of)
                if of
                    .decode()
                    .is_ok_and(|of: ResultType| of == ResultType::COMPLETE) => {}
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
        if method == OPENING {
            object.remove("supportedVersions");
            object.set("protocolVersion", encode(self.0.version));
            let server = own_server.unwrap_or_else(|| server.clone());
            object.set("serverInfo", Fit(self.0).implementation(server));
            self.fit_capabilities(&mut object);
        } else {
            Fit(self.0).result(method, &mut object)?;
        }
        Ok(object.to_json())
    }

    /// Whether a result is as this version has it already, as those of tools and prompts mostly are.
    fn is_bare(self, method: &str, result: &Json) -> Result<bool, NotAnObject> {
        let mut members = Members::of(result.as_bytes())?;
        while let Some((name, _)) = members.next()? {
            if EDITED.iter().any(|edited| name.is(edited)) {
                return Ok(false);
            }
        }
        Ok(method != OPENING && !Fit(self.0).may_change(method))
    }

    pub(in crate::era) fn tell(self, mut notification: Notification) -> Notification {
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
        if notification.method == ProgressNotification::NAME {
            for name in self.0.absent.of_progress {
                object.remove(name);
            }
        }
        notification.params = (!object.is_empty()).then(|| object.to_json());
        notification
    }

    pub(in crate::era) fn admit_from_server(
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

    pub(in crate::era) fn initialized(self) -> Notification {
        Notification::new("notifications/initialized", None)
    }

    fn seal_error(self, mut error: RpcError) -> RpcError {
        error.code = self.0.error_code(error.code);
        error
    }

    /// Takes away what a server of this version does not declare.
    fn fit_capabilities(self, introduction: &mut Object<'_>) {
        if self.0.completions_are_declared {
            return;
        }
        let Some(declared) = introduction.member("capabilities").cloned() else {
            return;
        };
        if let Ok(mut capabilities) = Object::read(&declared)
            && capabilities.remove("completions").is_some()
        {
            let fitted = capabilities.to_json();
            introduction.set("capabilities", fitted);
        }
    }
}

/// `initialize` must say who is asking, even for a client that would rather not.
fn client_of(caller: &Caller) -> Json {
    match &caller.implementation {
        Some(implementation) => encode(implementation),
        None => encode(&Implementation::new("anonymous", "0")),
    }
}

/// What only modern requests say, and must not leak into legacy ones.
const ENVELOPE: [&str; 4] = [
    meta_key::PROTOCOL_VERSION,
    meta_key::CLIENT_INFO,
    meta_key::CLIENT_CAPABILITIES,
    meta_key::LOG_LEVEL,
];

/// What may have to be taken away from a result.
const EDITED: [&str; 5] = [
    "resultType",
    "ttlMs",
    "cacheScope",
    "_meta",
    "structuredContent",
];
