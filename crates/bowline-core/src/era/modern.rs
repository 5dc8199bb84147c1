//! The modern era: `_meta` of every request carries the envelope, that is version, `clientInfo`, capabilities and log
//! level.
//!
//! Admission has separate steps, so that the HTTP transport can check headers between them: [`Envelope::read`] (a
//! version is present), [`Envelope::dialect`] (it is served), [`Envelope::caller`] (the rest of the envelope is valid).

use std::borrow::Cow;
use std::sync::Arc;

use bowline_types::{
    ClientCapabilities, Json, JsonObjectWriter, ProgressToken, ResultType, RpcError, meta_key,
};
use serde::Deserialize;

use super::caller_cache::CallerMembers;
use super::edit::{edit_meta, encode, set_or_remove};
use super::request::check_caller_text;
use super::{
    Caller, Dialect, Dialects, Rejection, Request, ResultViolation, Seal, Stamped, Unsealed,
    unsendable_result,
};
use crate::json::{Members, NotAnObject, Object, Params, pick};
use crate::{Notification, Outcome, RawRequest};

/// Returns whether `_meta` of a request has a protocol version, valid or not.
#[must_use]
pub fn has_version(params: Option<&Params>) -> bool {
    matches!(EnvelopeMembers::of(params), Ok(members) if members.version.is_some())
}

/// Returns whether `_meta` of a notification has a protocol version, valid or not.
#[must_use]
pub fn is_modern_notification(notification: &Notification) -> bool {
    let params = notification.params.clone().map(Params::from);
    has_version(params.as_ref())
}

/// Admits a request by its `_meta`, without a cache of callers.
///
/// # Errors
///
/// If the envelope is missing or invalid, if its version is not served, or if only other versions define the method.
pub fn admit(raw: RawRequest, served: &Dialects) -> Result<(Request, Seal), Rejection> {
    let envelope = Envelope::read(raw.params.as_ref())?;
    let dialect = envelope.dialect(served)?;
    let caller = Arc::new(envelope.caller(dialect)?);
    admit_from(raw, caller, envelope.progress_token()?)
}

/// The last step of admission, for a request whose envelope is already decoded.
///
/// # Errors
///
/// If only other versions define the method.
pub fn admit_from(
    raw: RawRequest,
    caller: Arc<Caller>,
    progress_token: Option<ProgressToken>,
) -> Result<(Request, Seal), Rejection> {
    // This also rejects `initialize` with a modern envelope.
    if caller.dialect.lacks_request(&raw.method) {
        return Err(Rejection::method_not_found(&raw.method));
    }
    let seal = Seal::new(caller.dialect, raw.method.clone());
    let request = Request {
        method: raw.method,
        params: raw.params.unwrap_or_else(Params::none),
        caller,
        progress_token,
    };
    Ok((request, seal))
}

/// The envelope of a modern request. Its version is decoded, the rest is not validated yet.
#[derive(Clone, Debug)]
pub struct Envelope {
    version: Cow<'static, str>,
    members: EnvelopeMembers,
    /// The complete `_meta`.
    meta: Json,
}

impl Envelope {
    /// Reads the envelope of a request.
    ///
    /// # Errors
    ///
    /// If `_meta` is missing or invalid, or has no version string.
    pub fn read(params: Option<&Params>) -> Result<Self, Rejection> {
        Self::find(params)?.ok_or_else(missing_version)
    }

    /// Reads the envelope of a request; `None` if the request has no version and thus may be a legacy one.
    ///
    /// # Errors
    ///
    /// If `_meta` is not an object, has a duplicate envelope member, or its version is not a string.
    pub fn find(params: Option<&Params>) -> Result<Option<Self>, Rejection> {
        match meta(params)? {
            Some(meta) => Self::of(meta),
            None => Ok(None),
        }
    }

    /// As [`find`](Self::find), with the `_meta` already found.
    pub(super) fn of(meta: Json) -> Result<Option<Self>, Rejection> {
        let members = EnvelopeMembers::read(&meta)?;
        let Some(version) = &members.version else {
            return Ok(None);
        };
        let version = version
            .text()
            .map_err(|_| invalid_member(meta_key::PROTOCOL_VERSION))?;
        let version = match Dialect::of(&version) {
            Some(dialect) => Cow::Borrowed(dialect.version),
            None => Cow::Owned(version.into_owned()),
        };
        Ok(Some(Self {
            version,
            members,
            meta,
        }))
    }

    /// Returns the version of the request.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the dialect of the version.
    ///
    /// # Errors
    ///
    /// If the version is not modern or not in `served`; the error lists the supported versions.
    pub fn dialect(&self, served: &Dialects) -> Result<&'static Dialect, Rejection> {
        served
            .of(&self.version)
            .filter(|dialect| dialect.is_modern())
            .ok_or_else(|| Rejection::unsupported_version(&self.version, served))
    }

    /// Decodes the caller.
    ///
    /// # Errors
    ///
    /// If the capabilities are missing, or a member of the envelope is invalid.
    pub fn caller(&self, dialect: &'static Dialect) -> Result<Caller, Rejection> {
        let members = &self.members;
        let Some(capabilities) = &members.capabilities else {
            return Err(missing_member(meta_key::CLIENT_CAPABILITIES));
        };
        check_caller_text(members.client.as_ref(), Some(capabilities))?;
        Ok(Caller {
            dialect,
            implementation: match &members.client {
                Some(client) => {
                    Some(object(client).ok_or_else(|| invalid_member(meta_key::CLIENT_INFO))?)
                }
                None => None,
            },
            capabilities: object(capabilities)
                .ok_or_else(|| invalid_member(meta_key::CLIENT_CAPABILITIES))?,
            log_level: optional(meta_key::LOG_LEVEL, members.log_level.as_ref())?,
        })
    }

    /// Decodes the progress token, if there is one.
    ///
    /// # Errors
    ///
    /// If it is neither a string nor an integer.
    pub fn progress_token(&self) -> Result<Option<ProgressToken>, Rejection> {
        self.members.progress_token()
    }

    pub(super) fn meta(&self) -> &Json {
        &self.meta
    }

    /// Returns the members that the [caller](Self::caller) is decoded from.
    pub(super) fn caller_members(&self) -> CallerMembers<'_> {
        CallerMembers {
            client: self.members.client.as_ref(),
            capabilities: self.members.capabilities.as_ref(),
            log_level: self.members.log_level.as_ref(),
        }
    }
}

/// The envelope's members of `_meta`, not validated. `None` is an absent member; `null` is present.
#[derive(Clone, Debug, Default)]
pub(super) struct EnvelopeMembers {
    version: Option<Json>,
    client: Option<Json>,
    capabilities: Option<Json>,
    log_level: Option<Json>,
    progress_token: Option<Json>,
}

impl EnvelopeMembers {
    /// Finds the members in `_meta` of a request's params.
    pub(super) fn of(params: Option<&Params>) -> Result<Self, Rejection> {
        match meta(params)? {
            Some(meta) => Self::read(&meta),
            None => Ok(Self::default()),
        }
    }

    /// Finds the members, and rejects duplicates, which JSON parsers resolve differently.
    fn read(meta: &Json) -> Result<Self, Rejection> {
        let [version, client, capabilities, log_level, progress_token] =
            pick(meta, ENVELOPE).map_err(|_| invalid_meta())?;
        Ok(Self {
            version,
            client,
            capabilities,
            log_level,
            progress_token,
        })
    }

    pub(super) fn progress_token(&self) -> Result<Option<ProgressToken>, Rejection> {
        optional(meta_key::PROGRESS_TOKEN, self.progress_token.as_ref())
    }
}

/// Returns `_meta` of a request's params. `null` counts as absent, because some legacy clients send it.
pub(super) fn meta(params: Option<&Params>) -> Result<Option<Json>, Rejection> {
    let Some(params) = params else {
        return Ok(None);
    };
    let meta = params.member("_meta").map_err(|_| invalid_meta())?;
    Ok(meta.filter(|meta| !meta.is_null()))
}

/// Returns the rejection of a request without a required version.
pub(crate) fn missing_version() -> Rejection {
    missing_member(meta_key::PROTOCOL_VERSION)
}

fn invalid_meta() -> Rejection {
    Rejection::invalid_params("`_meta` must be one object without duplicate members")
}

/// Adds the caller's encoded envelope to a request.
pub(super) fn stamp(request: &Request, envelope: &Json) -> Stamped {
    let params = match request.params.member("_meta") {
        Ok(None) => add_meta(request, envelope),
        _ => rewrite_meta(request, envelope),
    };
    Stamped {
        method: request.method.clone(),
        params: Some(params.unwrap_or_else(|| Json::clone(&request.params))),
    }
}

/// Adds a `_meta` to params without one; `None` if they are not an object.
fn add_meta(request: &Request, envelope: &Json) -> Option<Json> {
    let mut params = Json::clone(&request.params).into_writer()?;
    match &request.progress_token {
        None => params.add("_meta", envelope),
        Some(token) => {
            let mut meta = envelope.clone().into_writer()?;
            meta.add(meta_key::PROGRESS_TOKEN, &encode(token));
            params.add("_meta", &meta.close());
        }
    }
    Some(params.close())
}

/// Merges the envelope into the `_meta` of params; `None` if they are not an object.
fn rewrite_meta(request: &Request, envelope: &Json) -> Option<Json> {
    let mut params = Object::read(&request.params).ok()?;
    let envelope = Object::read(envelope).ok()?;
    let progress_token = request.progress_token.as_ref().map(encode);
    edit_meta(&mut params, |meta| {
        for name in ENVELOPE {
            set_or_remove(meta, name, envelope.member(name).cloned());
        }
        set_or_remove(meta, meta_key::PROGRESS_TOKEN, progress_token);
    });
    Some(params.to_json())
}

/// Encodes the envelope that the caller sends with each request.
pub(super) fn envelope(caller: &Caller) -> Json {
    let mut envelope = Object::default();
    envelope.set(meta_key::PROTOCOL_VERSION, encode(caller.dialect.version));
    let client = caller.implementation.as_ref().map(encode);
    set_or_remove(&mut envelope, meta_key::CLIENT_INFO, client);
    let capabilities = encode(&capabilities_of(caller));
    envelope.set(meta_key::CLIENT_CAPABILITIES, capabilities);
    let log_level = caller.log_level.as_ref().map(encode);
    set_or_remove(&mut envelope, meta_key::LOG_LEVEL, log_level);
    envelope.to_json()
}

/// Returns the caller's capabilities without `roots.listChanged`, which the modern era does not define.
fn capabilities_of(caller: &Caller) -> Cow<'_, ClientCapabilities> {
    let mut capabilities = Cow::Borrowed(&caller.capabilities);
    let roots = caller.capabilities.roots.as_ref();
    if roots.is_some_and(|roots| roots.list_changed.is_some()) {
        let roots = capabilities.to_mut().roots.as_mut();
        roots
            .into_iter()
            .for_each(|roots| roots.list_changed = None);
    }
    capabilities
}

pub(super) fn unseal(
    method: &str,
    dialect: &'static Dialect,
    result: Json,
) -> Result<Unsealed, ResultViolation> {
    let result_type = result_type(&result).map_err(|_| ResultViolation::InvalidResultType)?;
    match result_type {
        // Servers of older versions send no `resultType`.
        None => Ok(Unsealed::Complete(result)),
        Some(of) if of == ResultType::COMPLETE => Ok(Unsealed::Complete(result)),
        Some(of) if of == ResultType::INPUT_REQUIRED => {
            if dialect.may_need_input(method) {
                Ok(Unsealed::InputRequired(result))
            } else {
                Err(ResultViolation::InputRequiredNotAllowed(method.to_owned()))
            }
        }
        Some(of) => Ok(Unsealed::Extension {
            result_type: of.as_str().to_owned(),
            result,
        }),
    }
}

/// Adds the members that a modern result requires, and removes cache hints from incomplete results.
///
/// New members are appended, so that the text of a long result is copied only if a member must be removed.
pub(super) fn seal(seal: &Seal, server: &Json, outcome: Outcome) -> Outcome {
    let mut result = outcome.map_err(|error| seal_error(seal.dialect, error))?;
    let not_an_object = |NotAnObject| unsendable_result("result is not an object");
    let is_cached = seal.dialect.is_cacheable(&seal.method);
    let members = ResultMembers::read(&result, is_cached).map_err(not_an_object)?;
    let kind = members.kind()?;
    if kind == ResultType::INPUT_REQUIRED && !seal.dialect.may_need_input(&seal.method) {
        return Err(unsendable_result(
            "`input_required` is not allowed for this method",
        ));
    }
    let is_complete = kind == ResultType::COMPLETE;
    let has_hints = is_cached && is_complete;
    let missing_members = [
        ("resultType", r#""complete""#, members.result_type.is_none()),
        ("ttlMs", "0", has_hints && members.ttl.is_none()),
        // Private by default: a result without a scope may depend on the caller.
        (
            "cacheScope",
            r#""private""#,
            has_hints && members.scope.is_none(),
        ),
    ];
    let has_server_info = members.has_server_info();
    let removed_members = [
        ("ttlMs", members.ttl.is_some() && !is_complete),
        ("cacheScope", members.scope.is_some() && !is_complete),
        // Written again by `add_server_info`, with `serverInfo`.
        ("_meta", members.meta.is_some() && !has_server_info),
    ];
    let meta_without_server_info = members.meta.filter(|_| !has_server_info);
    let meta_without_server_info = meta_without_server_info.map(|meta| result.slice(meta));

    if removed_members.iter().any(|(_, is_removed)| *is_removed) {
        result = without(&result, &removed_members).map_err(not_an_object)?;
    }
    if has_server_info && missing_members.iter().all(|(.., is_missing)| !is_missing) {
        return Ok(result);
    }
    let mut writer = result
        .into_writer()
        .ok_or(NotAnObject)
        .map_err(not_an_object)?;
    // Space for everything that may be added, so that the text is moved at most once.
    writer.reserve(MAX_ADDED_BYTES + server.as_bytes().len());
    for (name, value, _) in missing_members
        .iter()
        .filter(|(.., is_missing)| *is_missing)
    {
        writer.add(name, &Json::from_static(value));
    }
    if !has_server_info {
        add_server_info(&mut writer, meta_without_server_info.as_ref(), server);
    }
    Ok(writer.close())
}

/// Returns the object without the members whose flag is set.
fn without(json: &Json, members: &[(&str, bool)]) -> Result<Json, NotAnObject> {
    let object = Object::read(json)?;
    let kept = object
        .iter()
        .filter(|(name, _)| !members.contains(&(*name, true)));
    Ok(Json::object(kept))
}

/// Adds `_meta` with its previous members and `serverInfo`.
fn add_server_info(result: &mut JsonObjectWriter, meta: Option<&Json>, server: &Json) {
    result.begin("_meta");
    let meta = meta.and_then(|meta| Object::read(meta).ok());
    for (name, value) in meta.iter().flat_map(Object::iter) {
        result.add(name, value);
    }
    result.add(meta_key::SERVER_INFO, server);
    result.end();
}

/// The text of those members of a result that `seal` checks.
#[derive(Default)]
struct ResultMembers<'a> {
    result_type: Option<&'a [u8]>,
    meta: Option<&'a [u8]>,
    /// Read only if the method's results are cacheable.
    ttl: Option<&'a [u8]>,
    scope: Option<&'a [u8]>,
}

impl<'a> ResultMembers<'a> {
    /// Stops as soon as all members are found, so that a long result that has them first is not scanned.
    fn read(result: &'a Json, is_cached: bool) -> Result<Self, NotAnObject> {
        let mut found = Self::default();
        let mut members = Members::of(result.as_bytes())?;
        while let Some((name, value)) = members.next()? {
            let member = if name.is("resultType") {
                &mut found.result_type
            } else if name.is("_meta") {
                &mut found.meta
            } else if is_cached && name.is("ttlMs") {
                &mut found.ttl
            } else if is_cached && name.is("cacheScope") {
                &mut found.scope
            } else {
                continue;
            };
            member.get_or_insert(value);
            let has_hints = !is_cached || found.ttl.is_some() && found.scope.is_some();
            if found.result_type.is_some() && found.meta.is_some() && has_hints {
                break;
            }
        }
        Ok(found)
    }

    fn kind(&self) -> Result<ResultType, RpcError> {
        match self.result_type {
            // Compared first, because nearly all results are complete, and decoding would allocate.
            None | Some(COMPLETE) => Ok(ResultType::COMPLETE),
            Some(text) => serde_json::from_slice(text)
                .map_err(|_| unsendable_result("`resultType` is not a string")),
        }
    }

    /// Returns whether `_meta` has `serverInfo`.
    fn has_server_info(&self) -> bool {
        let Some(Ok(mut members)) = self.meta.map(Members::of) else {
            return false;
        };
        while let Ok(Some((name, _))) = members.next() {
            if name.is(meta_key::SERVER_INFO) {
                return true;
            }
        }
        false
    }
}

/// Returns the rejection of a request without an envelope.
pub(super) fn missing_envelope(served: &Dialects) -> Rejection {
    let versions: Vec<_> = served.modern_versions().collect();
    Rejection::invalid_params(format!(
        "`params._meta` must have `{}` (supported: {})",
        meta_key::PROTOCOL_VERSION,
        versions.join(", ")
    ))
}

/// Returns the rejection of `initialize` on a server without legacy versions; it lists the supported ones.
pub(super) fn unsupported_initialize(params: Option<&Params>, served: &Dialects) -> Rejection {
    #[derive(Deserialize)]
    struct RequestedVersion {
        #[serde(rename = "protocolVersion")]
        version: String,
    }

    let requested = params.and_then(|params| object(params));
    let requested = requested.map_or_else(String::new, |RequestedVersion { version }| version);
    Rejection::unsupported_version(&requested, served)
}

fn result_type(result: &Json) -> Result<Option<ResultType>, ()> {
    let [result_type] = pick(result, ["resultType"]).map_err(drop)?;
    match result_type {
        // Compared first, because nearly all results are complete, and decoding would allocate.
        Some(text) if text.as_bytes() == COMPLETE => Ok(Some(ResultType::COMPLETE)),
        Some(text) => text.decode().map_err(drop),
        None => Ok(None),
    }
}

/// The usual text of [`ResultType::COMPLETE`].
const COMPLETE: &[u8] = br#""complete""#;

/// Maps the error code to one that the version defines.
fn seal_error(dialect: &Dialect, mut error: RpcError) -> RpcError {
    error.code = dialect.error_code(error.code);
    error
}

fn missing_member(key: &str) -> Rejection {
    Rejection::invalid_params(format!("`params._meta` must have `{key}`"))
}

fn decode<'a, T: Deserialize<'a>>(key: &str, json: &'a Json) -> Result<T, Rejection> {
    json.decode().map_err(|_| invalid_member(key))
}

/// Decodes an object. serde alone would also accept an array of the fields in order.
fn object<'a, T: Deserialize<'a>>(json: &'a Json) -> Option<T> {
    json.is_object().then(|| json.decode().ok()).flatten()
}

fn invalid_member(key: &str) -> Rejection {
    Rejection::invalid_params(format!("invalid `{key}` in `params._meta`"))
}

fn optional<'a, T: Deserialize<'a>>(
    key: &str,
    json: Option<&'a Json>,
) -> Result<Option<T>, Rejection> {
    json.map(|json| decode(key, json)).transpose()
}

/// An upper bound of what `seal` adds: four members without the value of `serverInfo`.
const MAX_ADDED_BYTES: usize = 128;

/// The members of `_meta` that form the envelope.
const ENVELOPE: [&str; 5] = [
    meta_key::PROTOCOL_VERSION,
    meta_key::CLIENT_INFO,
    meta_key::CLIENT_CAPABILITIES,
    meta_key::LOG_LEVEL,
    meta_key::PROGRESS_TOKEN,
];
