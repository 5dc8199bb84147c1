//! The claims of an access token that the user gave. The signature is not verified: that is for the server.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::Value;

use super::super::codes;
use super::super::report::Finding;
use super::auth::is_same_resource;

/// Judges a token; `None` if it is not a JWT, so that only its issuer can read it.
pub(crate) fn token(token: &str, server: &str, now: SystemTime) -> Option<Vec<Finding>> {
    let claims = claims(token)?;
    let now = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let mut findings = Vec::new();
    if let Some(expired) = time(&claims["exp"]).and_then(|exp| now.checked_sub(exp)) {
        let what = format!("The token expired {} ago.", rough(expired));
        findings.push(Finding::new(&codes::TOKEN_EXPIRED, what));
    }
    let starts = [&claims["nbf"], &claims["iat"]]
        .into_iter()
        .filter_map(time);
    let wait = starts.filter_map(|start| start.checked_sub(now)).max();
    if let Some(wait) = wait.filter(|wait| *wait > TOLERANCE) {
        let what = format!("The token is valid only {} from now.", rough(wait));
        findings.push(Finding::new(&codes::TOKEN_NOT_YET_VALID, what));
    }
    let audiences = audiences(&claims["aud"]);
    let is_url = |it: &&str| it.starts_with("http://") || it.starts_with("https://");
    let are_urls = !audiences.is_empty() && audiences.iter().all(|it| is_url(&it.as_str()));
    // An audience that is not a URL is a name that the server and its issuer have agreed on.
    if are_urls && !audiences.iter().any(|it| is_same_resource(server, it)) {
        let what = format!(
            "The token is for {}, and the server is {server}.",
            audiences.join(", ")
        );
        findings.push(Finding::new(&codes::TOKEN_AUDIENCE, what));
    }
    Some(findings)
}

fn claims(token: &str) -> Option<Value> {
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    (claims.is_object() && parts.next().is_none()).then_some(claims)
}

fn time(claim: &Value) -> Option<Duration> {
    let seconds = claim.as_f64().filter(|it| it.is_finite() && *it >= 0.0)?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn audiences(claim: &Value) -> Vec<String> {
    match claim {
        Value::String(one) => vec![one.clone()],
        Value::Array(many) => many
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    }
}

fn rough(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} minutes", seconds / 60),
        seconds @ ..172_800 => format!("{} hours", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

const TOLERANCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SERVER: &str = "https://mcp.example/mcp";

    fn codes(claims: &Value) -> Vec<&'static str> {
        let payload = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let findings = token(&format!("e30.{payload}.c2ln"), SERVER, now).unwrap();
        findings.iter().map(|it| it.code.name).collect()
    }

    #[test]
    fn expired_early_and_foreign_tokens_are_named() {
        assert!(codes(&json!({"exp": 1_000_100, "aud": [SERVER], "iat": 999_999})).is_empty());
        assert_eq!(codes(&json!({"exp": 999_000})), ["token-expired"]);
        assert_eq!(codes(&json!({"nbf": 1_001_000})), ["token-not-yet-valid"]);
        assert_eq!(
            codes(&json!({"aud": "https://other.example"})),
            ["token-audience"]
        );
        assert!(codes(&json!({"aud": "my-api", "exp": "soon"})).is_empty());
    }

    #[test]
    fn an_opaque_token_is_not_judged() {
        assert_eq!(token("abc", SERVER, SystemTime::now()), None);
        assert_eq!(token("a.b.c", SERVER, SystemTime::now()), None);
    }
}
