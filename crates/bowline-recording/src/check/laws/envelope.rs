//! Laws about the members that every request and result has in the modern era.

use bowline_core::era::Dialect;
use bowline_types::{Json, meta_key};

use super::super::context::{ResultOf, is_object};
use super::answers::describe;
use super::{BASIC, Breach, Breaches, CACHING, CheckContext, Law, must};
use crate::timeline::{member, text_member};
use crate::{Exchange, Side};

pub(super) const LAWS: &[Law] = &[
    must(
        "request-version",
        BASIC,
        "a request has its protocol version in `_meta`, unless the session was initialized",
        request_version,
    ),
    must(
        "request-capabilities",
        BASIC,
        "a modern request has the client's capabilities in `_meta`",
        request_capabilities,
    ),
    must(
        "result-type",
        BASIC,
        "a modern result has a string `resultType`",
        result_type,
    ),
    must(
        "cache-hints",
        CACHING,
        "a cacheable modern result has `ttlMs` and `cacheScope`",
        cache_hints,
    ),
    must(
        "removed-method",
        BASIC,
        "a request has a method of its protocol version",
        removed_method,
    ),
    must(
        "error-code",
        BASIC,
        "a modern error has no reserved code that the specification does not define",
        error_code,
    ),
];

fn request_version(context: &CheckContext<'_>, breaches: &mut Breaches) {
    if context.has_gaps {
        return;
    }
    for exchange in context.exchanges().filter(|it| it.from == Side::Client) {
        let may_come_first = matches!(exchange.method.as_str(), "initialize" | "ping");
        let is_missing = match &exchange.version {
            None => !may_come_first,
            // Known from a header only: the body is authoritative.
            Some(_) if exchange.is_modern() => {
                meta_text(exchange, meta_key::PROTOCOL_VERSION).is_none()
            }
            Some(_) => false,
        };
        // Over HTTP, version 2025-03-26 has no header, and its session may have begun before the recording.
        let may_be_old = context.is_http() && exchange.version.is_none();
        if is_missing && !may_be_old {
            let what = format!("{} has no protocol version in `_meta`", describe(exchange));
            breaches.push(Breach::new(what, [exchange.line]).of(exchange.number));
        }
    }
}

fn request_capabilities(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.modern().filter(|it| it.from == Side::Client) {
        let path = ["_meta", meta_key::CLIENT_CAPABILITIES];
        let capabilities = exchange.params.as_ref().and_then(|it| member(it, &path));
        if !is_object(capabilities.as_ref()) {
            let what = format!(
                "{} has no client capabilities in `_meta`",
                describe(exchange)
            );
            breaches.push(Breach::new(what, [exchange.line]).of(exchange.number));
        }
    }
}

fn result_type(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for result in context.results().filter(|it| it.exchange.is_modern()) {
        if text_member(result.result, &["resultType"]).is_none() {
            let what = format!(
                "the result of {} has no `resultType`",
                describe(result.exchange)
            );
            breaches.push(breach(&result, what));
        }
    }
}

fn cache_hints(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for result in context.results().filter(|it| it.exchange.is_modern()) {
        let name = describe(result.exchange);
        let (ttl, scope) = (result.member("ttlMs"), result.member("cacheScope"));
        if !result.is_complete() {
            if ttl.is_some() || scope.is_some() {
                let what = format!("the incomplete result of {name} has cache hints");
                breaches.push(breach(&result, what));
            }
            continue;
        }
        if !Dialect::LATEST.is_cacheable(&result.exchange.method) {
            continue;
        }
        if ttl.is_none_or(|ttl| ttl.decode::<u64>().is_err()) {
            let what = format!("the result of {name} has no integer `ttlMs` of at least 0");
            breaches.push(breach(&result, what));
        }
        let scope = scope.as_ref().map(Json::as_str);
        if !matches!(scope, Some(r#""public""# | r#""private""#)) {
            let what = format!("the result of {name} has no `cacheScope`, public or private");
            breaches.push(breach(&result, what));
        }
    }
}

fn removed_method(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.exchanges() {
        let version = exchange.version.as_ref();
        let Some(dialect) = version.and_then(|version| Dialect::of(version.as_str())) else {
            continue;
        };
        let lacks = match exchange.from {
            Side::Client => dialect.lacks_request(&exchange.method),
            // A law of its own is about these.
            Side::Server if dialect.is_modern() => false,
            Side::Server => dialect.lacks_server_request(&exchange.method),
        };
        if lacks {
            let what = format!("{dialect} has no method {}", describe(exchange));
            breaches.push(Breach::new(what, [exchange.line]).of(exchange.number));
        }
    }
}

fn error_code(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.modern() {
        let answer = exchange.answer.as_ref();
        let Some((line, Err(error))) = answer.map(|it| (it.line, &it.outcome)) else {
            continue;
        };
        let code = error.code.0;
        let is_undefined = (-32099..=-32020).contains(&code) && !(-32022..=-32020).contains(&code);
        if is_undefined || matches!(code, -32002 | -32042) {
            let what = format!(
                "the error of {} has the reserved code {code}",
                describe(exchange)
            );
            breaches.push(Breach::new(what, [line]).of(exchange.number));
        }
    }
}

fn meta_text(exchange: &Exchange, key: &str) -> Option<String> {
    text_member(exchange.params.as_ref()?, &["_meta", key])
}

fn breach(result: &ResultOf<'_>, what: String) -> Breach {
    Breach::new(what, [result.line]).of(result.exchange.number)
}
