//! The modern era: every request says who is asking.
//!
//! Admission is a ladder whose rungs can be climbed one by one, so that HTTP may check its headers in
//! between: [`Envelope::read`] (the version is there), [`Envelope::dialect`] (it is served),
//! [`Envelope::caller`] (the rest of the envelope is well-formed).

use std::borrow::Cow;
use std::sync::Arc;

use bowline_types::{
    ClientCapabilities, Json, OpenObject, ProgressToken, ResultType, RpcError, meta_key,
};
use serde::Deserialize;

use super::callers::Words;
use super::text::{edit_meta, encode, own};
use super::{
    Caller, Dialect, Dialects, Rejection, Request, Seal, Stamped, Unsealed, Violation, unsendable,
};
use crate::json::{Members, NotAnObject, Object, Params, pick};
use crate::{Outcome, RawRequest};

/// Whether a request claims to be modern: its `_meta` names a version, in whatever form.
#[must_use]
pub fn is_marked(params: Option<&Params>) -> bool {
    matches!(Keys::of(params), Ok(keys) if keys.version.is_some())
}

/// Admits a request by its own `_meta`, with nothing remembered.
///
/// # Errors
///
/// If the envelope is missing, names a version that is not served or is ill-formed, or if the method
/// belongs to other versions only.
pub fn admit(raw: RawRequest, served: &Dialects) -> Result<(Request, Seal), Rejection> {
    let envelope = Envelope::read(raw.params.as_ref())?;
    let dialect = envelope.dialect(served)?;
    let caller = Arc::new(envelope.caller(dialect)?);
    admit_from(raw, caller, envelope.progress_token()?)
}

/// The last rung: admits a request whose envelope was read before.
///
/// # Errors
///
/// If the method belongs to other versions only.
pub fn admit_from(
    raw: RawRequest,
    caller: Arc<Caller>,
    progress_token: Option<ProgressToken>,
) -> Result<(Request, Seal), Rejection> {
    // `initialize` ends here too: with a modern envelope it is no handshake.
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

/// The envelope of a modern request: its version is known, the rest is not judged yet.
#[derive(Clone, Debug)]
pub struct Envelope {
    version: Cow<'static, str>,
    keys: Keys,
    /// All of it, and whatever else stands there.
    meta: Json,
}

impl Envelope {
    /// Finds the version in `_meta` of a request's params.
    ///
    /// # Errors
    ///
    /// If there is no `_meta`, or no text in it that could be a version.
    pub fn read(params: Option<&Params>) -> Result<Self, Rejection> {
        Self::find(params)?.ok_or_else(unversioned)
    }

    /// As [`read`](Self::read), but a request that names no version is none of the modern era's business.
    ///
    /// # Errors
    ///
    /// If `_meta` is no object, or the version in it is no text.
    pub fn find(params: Option<&Params>) -> Result<Option<Self>, Rejection> {
        match meta(params)? {
            Some(meta) => Self::of(meta),
            None => Ok(None),
        }
    }

    /// As [`find`](Self::find), in this `_meta`.
    pub(super) fn of(meta: Json) -> Result<Option<Self>, Rejection> {
        let keys = Keys::read(&meta)?;
        let Some(version) = &keys.version else {
            return Ok(None);
        };
        let version = version
            .text()
            .map_err(|_| ill_formed(meta_key::PROTOCOL_VERSION))?;
        let version = match Dialect::of(&version) {
            Some(dialect) => Cow::Borrowed(dialect.version),
            None => Cow::Owned(version.into_owned()),
        };
        Ok(Some(Self {
            version,
            keys,
            meta,
        }))
    }

    /// The version that the request names.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The dialect of the version, if it is a modern one that is served.
    ///
    /// # Errors
    ///
    /// If it is not; the error names those that are.
    pub fn dialect(&self, served: &Dialects) -> Result<&'static Dialect, Rejection> {
        served
            .of(&self.version)
            .filter(|dialect| dialect.is_modern())
            .ok_or_else(|| Rejection::unsupported_version(&self.version, served))
    }

    /// Who is asking.
    ///
    /// # Errors
    ///
    /// If the capabilities are missing, or anything that the caller says of itself has the wrong shape.
    pub fn caller(&self, dialect: &'static Dialect) -> Result<Caller, Rejection> {
        let keys = &self.keys;
        let Some(capabilities) = &keys.capabilities else {
            return Err(missing(meta_key::CLIENT_CAPABILITIES));
        };
        Ok(Caller {
            dialect,
            implementation: match &keys.client {
                Some(client) => {
                    Some(object(client).ok_or_else(|| ill_formed(meta_key::CLIENT_INFO))?)
                }
                None => None,
            },
            capabilities: object(capabilities)
                .ok_or_else(|| ill_formed(meta_key::CLIENT_CAPABILITIES))?,
            log_level: optional(meta_key::LOG_LEVEL, keys.log_level.as_ref())?,
        })
    }

    /// What progress is to be marked with.
    ///
    /// # Errors
    ///
    /// If it can be no mark.
    pub fn progress_token(&self) -> Result<Option<ProgressToken>, Rejection> {
        self.keys.progress_token()
    }

    pub(super) fn meta(&self) -> &Json {
        &self.meta
    }

    /// All that decides who the [caller](Self::caller) is, but for the dialect.
    pub(super) fn words(&self) -> Words<'_> {
        Words {
            client: self.keys.client.as_ref(),
            capabilities: self.keys.capabilities.as_ref(),
            log_level: self.keys.log_level.as_ref(),
        }
    }
}

/// The envelope's members of `_meta`, not judged. `None` is absent; the text `null` is present.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    version: Option<Json>,
    client: Option<Json>,
    capabilities: Option<Json>,
    log_level: Option<Json>,
    progress_token: Option<Json>,
}

impl Keys {
    /// Finds the members in `_meta` of a request's params.
    pub(super) fn of(params: Option<&Params>) -> Result<Self, Rejection> {
        match meta(params)? {
            Some(meta) => Self::read(&meta),
            None => Ok(Self::default()),
        }
    }

    /// A member that stands twice is refused, for nobody can say which of the two counts.
    fn read(meta: &Json) -> Result<Self, Rejection> {
        let [version, client, capabilities, log_level, progress_token] =
            pick(meta, ENVELOPE).map_err(|_| ill_formed_meta())?;
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

/// The `_meta` of a request's params. Some legacy clients write down what they do not say.
pub(super) fn meta(params: Option<&Params>) -> Result<Option<Json>, Rejection> {
    let Some(params) = params else {
        return Ok(None);
    };
    let meta = params.member("_meta").map_err(|_| ill_formed_meta())?;
    Ok(meta.filter(|meta| !meta.is_null()))
}

/// The rejection of a request that must name a version and does not.
pub(crate) fn unversioned() -> Rejection {
    missing(meta_key::PROTOCOL_VERSION)
}

fn ill_formed_meta() -> Rejection {
    Rejection::invalid_params("`_meta` must be one object")
}

/// Puts the envelope of its caller onto a request.
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

/// Params that have no `_meta`, with one; `None` if they are no object.
fn add_meta(request: &Request, envelope: &Json) -> Option<Json> {
    let mut params = Json::clone(&request.params).into_open()?;
    match &request.progress_token {
        None => params.add("_meta", envelope),
        Some(token) => {
            let mut meta = envelope.clone().into_open()?;
            meta.add(meta_key::PROGRESS_TOKEN, &encode(token));
            params.add("_meta", &meta.close());
        }
    }
    Some(params.close())
}

/// Params that have a `_meta`, with the envelope in it; `None` if they are no object.
fn rewrite_meta(request: &Request, envelope: &Json) -> Option<Json> {
    let mut params = Object::read(&request.params).ok()?;
    let envelope = Object::read(envelope).ok()?;
    let progress_token = request.progress_token.as_ref().map(encode);
    edit_meta(&mut params, |meta| {
        for name in ENVELOPE {
            own(meta, name, envelope.member(name).cloned());
        }
        own(meta, meta_key::PROGRESS_TOKEN, progress_token);
    });
    Some(params.to_json())
}

/// What a caller says of itself in each of its requests.
pub(super) fn envelope(caller: &Caller) -> Json {
    let mut envelope = Object::default();
    envelope.set(meta_key::PROTOCOL_VERSION, encode(caller.dialect.version));
    let client = caller.implementation.as_ref().map(encode);
    own(&mut envelope, meta_key::CLIENT_INFO, client);
    let capabilities = encode(&capabilities_of(caller));
    envelope.set(meta_key::CLIENT_CAPABILITIES, capabilities);
    let log_level = caller.log_level.as_ref().map(encode);
    own(&mut envelope, meta_key::LOG_LEVEL, log_level);
    envelope.to_json()
}

/// What the caller can do, in the words of this era: roots are asked for, and nobody tells that they changed.
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
    extensions: &[&str],
    result: Json,
) -> Result<Unsealed, Violation> {
    let result_type = result_type(&result).map_err(|_| Violation::ResultTypeIsNotText)?;
    match result_type {
        // An older server does not say.
        None => Ok(Unsealed::Complete(result)),
        Some(of) if of == ResultType::COMPLETE => Ok(Unsealed::Complete(result)),
        Some(of) if of == ResultType::INPUT_REQUIRED => {
            if dialect.may_need_input(method) {
                Ok(Unsealed::InputRequired(result))
            } else {
                Err(Violation::InputRequiredNotAllowed(method.to_owned()))
            }
        }
        Some(of) if extensions.contains(&of.as_str()) => Ok(Unsealed::Extension {
            result_type: of.as_str().to_owned(),
            result,
        }),
        Some(of) => Err(Violation::UnknownResultType(of.as_str().to_owned())),
    }
}

/// What a result must say and does not is added behind what it says, whose text is written again only if
/// something in it has to go.
pub(super) fn seal(seal: &Seal, server: &Json, outcome: Outcome) -> Outcome {
    let mut result = outcome.map_err(|error| seal_error(seal.dialect, error))?;
    let not_an_object = |NotAnObject| unsendable("the result is not an object");
    let is_cached = seal.dialect.caches(&seal.method);
    let said = Said::read(&result, is_cached).map_err(not_an_object)?;
    let kind = said.kind()?;
    if kind == ResultType::INPUT_REQUIRED && !seal.dialect.may_need_input(&seal.method) {
        return Err(unsendable("this method cannot ask for input"));
    }
    let is_complete = kind == ResultType::COMPLETE;
    let has_hints = is_cached && is_complete;
    let lacking = [
        ("resultType", r#""complete""#, said.result_type.is_none()),
        ("ttlMs", "0", has_hints && said.ttl.is_none()),
        // Whoever does not say that a result is for everybody may have made it for one.
        (
            "cacheScope",
            r#""private""#,
            has_hints && said.scope.is_none(),
        ),
    ];
    let is_signed = said.is_signed();
    let has_to_go = [
        ("ttlMs", said.ttl.is_some() && !is_complete),
        ("cacheScope", said.scope.is_some() && !is_complete),
        // It comes back, with more in it.
        ("_meta", said.meta.is_some() && !is_signed),
    ];
    let unsigned = said.meta.filter(|_| !is_signed);
    let unsigned = unsigned.map(|meta| result.slice(meta));

    if has_to_go.iter().any(|(_, goes)| *goes) {
        result = without(&result, &has_to_go).map_err(not_an_object)?;
    }
    if is_signed && lacking.iter().all(|(.., is_lacking)| !is_lacking) {
        return Ok(result);
    }
    let mut open = result
        .into_open()
        .ok_or(NotAnObject)
        .map_err(not_an_object)?;
    // For all that is added, so that the text moves once.
    let lacks = lacking.iter().filter(|(.., is_lacking)| *is_lacking);
    let added = lacks.map(|(name, value, _)| name.len() + value.len() + AROUND);
    let signature = match is_signed {
        true => 0,
        false => SIGNATURE.len() + server.as_bytes().len() + AROUND,
    };
    open.reserve(added.sum::<usize>() + signature);
    for (name, value, _) in lacking.iter().filter(|(.., is_lacking)| *is_lacking) {
        open.add(name, &Json::from_static(value));
    }
    if !is_signed {
        sign(&mut open, unsigned.as_ref(), server);
    }
    Ok(open.close())
}

/// An object without those of the members that go.
fn without(json: &Json, members: &[(&str, bool)]) -> Result<Json, NotAnObject> {
    let object = Object::read(json)?;
    let kept = object
        .iter()
        .filter(|(name, _)| !members.contains(&(*name, true)));
    Ok(Json::object(kept))
}

/// Adds a `_meta` that says what it said before, and which server made the result.
fn sign(result: &mut OpenObject, meta: Option<&Json>, server: &Json) {
    result.begin("_meta");
    let meta = meta.and_then(|meta| Object::read(meta).ok());
    for (name, value) in meta.iter().flat_map(Object::iter) {
        result.add(name, value);
    }
    result.add(meta_key::SERVER_INFO, server);
    result.end();
}

/// What a result says of that which every result must say.
#[derive(Default)]
struct Said<'a> {
    result_type: Option<&'a [u8]>,
    meta: Option<&'a [u8]>,
    /// Looked at only where a result may be cached.
    ttl: Option<&'a [u8]>,
    scope: Option<&'a [u8]>,
}

impl<'a> Said<'a> {
    /// Reads no further than to what it looks for: a server that says it first may say much behind it.
    fn read(result: &'a Json, is_cached: bool) -> Result<Self, NotAnObject> {
        let mut said = Self::default();
        let mut members = Members::of(result.as_bytes())?;
        while let Some((name, value)) = members.next()? {
            let member = if name.is("resultType") {
                &mut said.result_type
            } else if name.is("_meta") {
                &mut said.meta
            } else if is_cached && name.is("ttlMs") {
                &mut said.ttl
            } else if is_cached && name.is("cacheScope") {
                &mut said.scope
            } else {
                continue;
            };
            member.get_or_insert(value);
            let has_hints = !is_cached || said.ttl.is_some() && said.scope.is_some();
            if said.result_type.is_some() && said.meta.is_some() && has_hints {
                break;
            }
        }
        Ok(said)
    }

    fn kind(&self) -> Result<ResultType, RpcError> {
        let Some(text) = self.result_type else {
            return Ok(ResultType::COMPLETE);
        };
        serde_json::from_slice(text).map_err(|_| unsendable("`resultType` is not text"))
    }

    /// Whether it says which server made it.
    fn is_signed(&self) -> bool {
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

/// The error of a request that is refused for want of an envelope.
pub(super) fn no_envelope(served: &Dialects) -> Rejection {
    let versions: Vec<_> = served.modern_versions().collect();
    Rejection::invalid_params(format!(
        "`params._meta` must have `{}` (supported: {})",
        meta_key::PROTOCOL_VERSION,
        versions.join(", ")
    ))
}

/// The error of an `initialize` where no version with a handshake is served; it names those that are.
pub(super) fn no_handshake(params: Option<&Params>, served: &Dialects) -> Rejection {
    #[derive(Deserialize)]
    struct Offer {
        #[serde(rename = "protocolVersion")]
        version: String,
    }

    let offer = params.and_then(|params| object(params));
    let requested = offer.map_or_else(String::new, |Offer { version }| version);
    Rejection::unsupported_version(&requested, served)
}

fn result_type(result: &Json) -> Result<Option<ResultType>, ()> {
    let [result_type] = pick(result, ["resultType"]).map_err(drop)?;
    match result_type {
        Some(text) => text.decode().map_err(drop),
        None => Ok(None),
    }
}

/// Codes that this version does not define must not be sent.
fn seal_error(dialect: &Dialect, mut error: RpcError) -> RpcError {
    error.code = dialect.error_code(error.code);
    error
}

fn missing(key: &str) -> Rejection {
    Rejection::invalid_params(format!("`params._meta` must have `{key}`"))
}

fn decode<'a, T: Deserialize<'a>>(key: &str, json: &'a Json) -> Result<T, Rejection> {
    json.decode().map_err(|_| ill_formed(key))
}

/// Decodes an object. serde alone would take an array too, for the members in their order.
fn object<'a, T: Deserialize<'a>>(json: &'a Json) -> Option<T> {
    json.is_object().then(|| json.decode().ok()).flatten()
}

fn ill_formed(key: &str) -> Rejection {
    Rejection::invalid_params(format!("`{key}` in `_meta` has the wrong shape"))
}

fn optional<'a, T: Deserialize<'a>>(
    key: &str,
    json: Option<&'a Json>,
) -> Result<Option<T>, Rejection> {
    json.map(|json| decode(key, json)).transpose()
}

/// What a signature looks like around the name of the server.
const SIGNATURE: &str = r#","_meta":{"io.modelcontextprotocol/serverInfo":}"#;

/// How many bytes stand around the name and the value of a member, with the end of an object.
const AROUND: usize = 8;

/// The members of `_meta` that are the envelope.
const ENVELOPE: [&str; 5] = [
    meta_key::PROTOCOL_VERSION,
    meta_key::CLIENT_INFO,
    meta_key::CLIENT_CAPABILITIES,
    meta_key::LOG_LEVEL,
    meta_key::PROGRESS_TOKEN,
];
