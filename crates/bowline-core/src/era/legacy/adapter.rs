//! [`Adapter`]: conversion of messages to and from the wire form of one legacy dialect.

use std::sync::Arc;

use bowline_types::{
    CacheScope, Implementation, Json, NotificationMethod, ProgressNotification, ResultType,
    RpcError, meta_key,
};

use super::converter::RevisionConverter;
use super::{DISCOVER, admit_as};
use crate::era::edit::{edit_meta, encode, set_or_remove};
use crate::era::{
    Caller, Dialect, Rejection, Request, RequestAction, ResultViolation, Stamped, Unsealed,
    unsendable_result,
};
use crate::json::{Members, NotAnObject, Object};
use crate::{Notification, Outcome, RawRequest};

/// Converts messages to and from the wire form of one legacy dialect.
#[derive(Clone, Copy, Debug)]
pub struct Adapter(&'static Dialect);

impl Adapter {
    /// Returns the adapter of a legacy dialect; `None` for a modern one.
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
            set_or_remove(meta, meta_key::PROGRESS_TOKEN, progress_token);
        });
        let mut method = request.method.clone();
        if method == DISCOVER {
            method = "initialize".into();
            let converter = RevisionConverter(self.0);
            let capabilities = encode(&request.caller.capabilities);
            params.set("protocolVersion", encode(self.0.version));
            params.set("capabilities", converter.client_capabilities(capabilities));
            params.set(
                "clientInfo",
                converter.implementation(client_of(&request.caller)),
            );
        } else {
            RevisionConverter(self.0).params(&method, &mut params);
        }
        Stamped {
            method,
            params: (!params.is_empty()).then(|| params.to_json()),
        }
    }

    /// Removes from the params what the dialect does not define.
    pub(in crate::era) fn convert_params(self, request: &mut Request) {
        let converter = RevisionConverter(self.0);
        let params = Object::read(&request.params).ok().map(|mut params| {
            converter.params(&request.method, &mut params);
            params.to_json()
        });
        if let Some(params) = params {
            request.params = params.into();
        }
    }

    /// Converts the params of a server-to-client request.
    pub(in crate::era) fn convert_question(self, method: &str, params: &mut Object<'_>) {
        RevisionConverter(self.0).params(method, params);
    }

    /// Returns `caller` without the capabilities that the dialect does not define.
    pub(in crate::era) fn convert_caller(self, caller: &Arc<Caller>) -> Arc<Caller> {
        let mut caller = caller.clone();
        let capabilities = encode(&caller.capabilities);
        let capabilities = RevisionConverter(self.0).client_capabilities(capabilities);
        if let Ok(capabilities) = capabilities.decode()
            && capabilities != caller.capabilities
        {
            Arc::make_mut(&mut caller).capabilities = capabilities;
        }
        caller
    }

    pub(in crate::era) fn unseal(
        self,
        method: &str,
        result: Json,
    ) -> Result<Unsealed, ResultViolation> {
        if method != DISCOVER {
            let result = without_modern_members(result);
            return result.map(Unsealed::Complete);
        }
        let mut initialize_result =
            Object::read(&result).map_err(|_| ResultViolation::ResultIsNotAnObject)?;
        let version: String = initialize_result
            .remove("protocolVersion")
            .and_then(|version| version.decode().ok())
            .ok_or(ResultViolation::InvalidInitializeResult("protocolVersion"))?;
        // Modern versions have no `initialize`, so none may be negotiated by it.
        if Dialect::of(&version).is_none_or(Dialect::is_modern) {
            return Err(ResultViolation::UnsupportedVersion(version));
        }
        let server = initialize_result
            .remove("serverInfo")
            .filter(Json::is_object)
            .ok_or(ResultViolation::InvalidInitializeResult("serverInfo"))?;
        if !initialize_result
            .member("capabilities")
            .is_some_and(Json::is_object)
        {
            return Err(ResultViolation::InvalidInitializeResult("capabilities"));
        }
        initialize_result.set("resultType", encode(&ResultType::COMPLETE));
        initialize_result.set("supportedVersions", encode(&[version]));
        initialize_result.set("ttlMs", encode(&0));
        initialize_result.set("cacheScope", encode(&CacheScope::PRIVATE));
        edit_meta(&mut initialize_result, |meta| {
            meta.set(meta_key::SERVER_INFO, server);
        });
        Ok(Unsealed::Complete(initialize_result.to_json()))
    }

    pub(in crate::era) fn seal(self, method: &str, server: &Json, outcome: Outcome) -> Outcome {
        let result = outcome.map_err(|error| self.seal_error(error))?;
        let not_an_object = |_| unsendable_result("result is not an object");
        if self
            .needs_no_conversion(method, &result)
            .map_err(not_an_object)?
        {
            return Ok(result);
        }
        let mut object = Object::read(&result).map_err(not_an_object)?;
        match object.remove("resultType") {
            None => {}
            Some(of)
                if of
                    .decode()
                    .is_ok_and(|of: ResultType| of == ResultType::COMPLETE) => {}
            Some(_) => {
                return Err(unsendable_result(
                    "the caller's version allows only complete results",
                ));
            }
        }
        for name in MODERN_RESULT_MEMBERS {
            object.remove(name);
        }
        let mut result_server_info = None;
        edit_meta(&mut object, |meta| {
            result_server_info = meta.remove(meta_key::SERVER_INFO);
            meta.remove(meta_key::SUBSCRIPTION_ID);
        });
        if method == DISCOVER {
            object.remove("supportedVersions");
            object.set("protocolVersion", encode(self.0.version));
            let server = result_server_info.unwrap_or_else(|| server.clone());
            object.set(
                "serverInfo",
                RevisionConverter(self.0).implementation(server),
            );
            self.remove_undefined_capabilities(&mut object);
        } else {
            RevisionConverter(self.0).result(method, &mut object)?;
        }
        Ok(object.to_json())
    }

    /// Returns whether a result needs no conversion, which is the common case for tools and prompts.
    fn needs_no_conversion(self, method: &str, result: &Json) -> Result<bool, NotAnObject> {
        let mut members = Members::of(result.as_bytes())?;
        while let Some((name, _)) = members.next()? {
            if EDITED.iter().any(|edited| name.is(edited)) {
                return Ok(false);
            }
        }
        Ok(method != DISCOVER && !RevisionConverter(self.0).may_change(method))
    }

    pub(in crate::era) fn convert_notification(
        self,
        mut notification: Notification,
    ) -> Notification {
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
            for name in self.0.undefined.progress_params {
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
    ) -> Result<RequestAction, Rejection> {
        match &*raw.method {
            "ping" => Ok(RequestAction::Respond(Json::empty_object())),
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

    /// Removes the server capabilities that this version does not define.
    fn remove_undefined_capabilities(self, initialize_result: &mut Object<'_>) {
        if self.0.has_completions_capability {
            return;
        }
        let Some(declared) = initialize_result.member("capabilities").cloned() else {
            return;
        };
        if let Ok(mut capabilities) = Object::read(&declared)
            && capabilities.remove("completions").is_some()
        {
            let converted = capabilities.to_json();
            initialize_result.set("capabilities", converted);
        }
    }
}

/// Removes the members of a result that only the modern era defines. In a legacy result they have no meaning, and in
/// the internal form they would mark it as incomplete or cacheable.
fn without_modern_members(result: Json) -> Result<Json, ResultViolation> {
    let not_an_object = |_| ResultViolation::ResultIsNotAnObject;
    let mut members = Members::of(result.as_bytes()).map_err(not_an_object)?;
    let mut has_modern = false;
    while let Some((name, _)) = members.next().map_err(not_an_object)? {
        has_modern |= MODERN_RESULT_MEMBERS.iter().any(|modern| name.is(modern));
    }
    if !has_modern {
        return Ok(result);
    }
    let object = Object::read(&result).map_err(not_an_object)?;
    let kept = object
        .iter()
        .filter(|(name, _)| !MODERN_RESULT_MEMBERS.contains(name));
    Ok(Json::object(kept))
}

/// Returns `clientInfo`, with a placeholder if the caller has none, because `initialize` requires it.
fn client_of(caller: &Caller) -> Json {
    match &caller.implementation {
        Some(implementation) => encode(implementation),
        None => encode(&Implementation::new("anonymous", "0")),
    }
}

/// The envelope members of modern requests, which legacy requests must not contain.
const ENVELOPE: [&str; 4] = [
    meta_key::PROTOCOL_VERSION,
    meta_key::CLIENT_INFO,
    meta_key::CLIENT_CAPABILITIES,
    meta_key::LOG_LEVEL,
];

/// The members of a result that legacy versions do not define.
const MODERN_RESULT_MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// The members of a result that a conversion may remove or change.
const EDITED: [&str; 5] = [
    "resultType",
    "ttlMs",
    "cacheScope",
    "_meta",
    "structuredContent",
];
