//! Authorization metadata, as a client that wants to sign in sees them.

use bowline::http::RedactedUrl;
use bowline::http::client::Challenge;
use serde_json::Value;
use url::Url;

use super::super::codes;
use super::super::probe::metadata::AuthFacts;
use super::super::report::Finding;

/// Judges a refusal with 401. `server` is the URL of the server.
pub(crate) fn authorization(facts: &AuthFacts, server: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_named = (facts.challenges.iter()).any(|it| it.resource_metadata().is_some());
    let Some((url, metadata)) = &facts.resource else {
        let challenge = match facts.challenges.is_empty() {
            true => "without WWW-Authenticate",
            false if is_named => "with metadata that cannot be read",
            false => "without `resource_metadata` in WWW-Authenticate",
        };
        let mut what = format!("The server refuses requests with status 401, {challenge}");
        if let Some(failure) = facts.failures.first() {
            what.push_str(&format!(", and there is no document at {failure}"));
        }
        what.push('.');
        findings.push(Finding::new(&codes::AUTH_NO_METADATA, what));
        return findings;
    };
    let shown = RedactedUrl::new(url);
    if !is_named {
        let what = format!("The 401 does not name the metadata, which are at {shown}.");
        findings.push(Finding::new(&codes::AUTH_NO_CHALLENGE, what));
    }
    let resource = metadata["resource"].as_str().unwrap_or_default();
    if !is_same_resource(server, resource) {
        let what = format!(
            "The metadata are of `{}`, and the server is {}.",
            RedactedUrl::new(resource),
            RedactedUrl::new(server)
        );
        findings.push(Finding::new(&codes::AUTH_RESOURCE_MISMATCH, what));
    }
    match &facts.issuer {
        None => {
            let what = format!("The metadata at {shown} list no `authorization_servers`.");
            findings.push(Finding::new(&codes::AUTH_NO_SERVER, what));
        }
        Some((issuer, None)) => {
            let why = facts.failures.last().cloned().unwrap_or_default();
            let issuer = RedactedUrl::new(issuer);
            let what = format!("The authorization server `{issuer}` has no metadata: {why}.");
            findings.push(Finding::new(&codes::AUTH_SERVER_METADATA, what));
        }
        Some((issuer, Some(metadata))) => findings.extend(issuer_metadata(issuer, metadata)),
    }
    findings
}

fn issuer_metadata(issuer: &str, metadata: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    let named = metadata["issuer"].as_str().unwrap_or_default();
    let is_other = named != issuer;
    let (issuer, named) = (RedactedUrl::new(issuer), RedactedUrl::new(named));
    if is_other {
        let what = format!("The metadata of `{issuer}` name the issuer `{named}`.");
        findings.push(Finding::new(&codes::AUTH_ISSUER_MISMATCH, what));
    }
    let missing = ["authorization_endpoint", "token_endpoint"];
    let missing: Vec<_> = missing
        .into_iter()
        .filter(|it| !metadata[*it].is_string())
        .collect();
    if !missing.is_empty() {
        let what = format!(
            "The metadata of `{issuer}` have no {}.",
            missing.join(" and no ")
        );
        findings.push(Finding::new(&codes::AUTH_SERVER_METADATA, what));
    }
    let methods = metadata["code_challenge_methods_supported"].as_array();
    if !methods.is_some_and(|it| it.iter().any(|method| method == "S256")) {
        let what = format!("The metadata of `{issuer}` do not list the PKCE method S256.");
        findings.push(Finding::new(&codes::AUTH_NO_PKCE, what));
    }
    let has_documents = metadata["client_id_metadata_document_supported"] == true;
    if !has_documents && !metadata["registration_endpoint"].is_string() {
        let what = format!("`{issuer}` lets no client register by itself.");
        findings.push(Finding::new(&codes::AUTH_NO_REGISTRATION, what));
    }
    findings
}

/// Returns whether metadata describe this server, or a resource of the same origin whose path contains it.
pub(crate) fn is_same_resource(server: &str, resource: &str) -> bool {
    let (Ok(server), Ok(resource)) = (Url::parse(server), Url::parse(resource)) else {
        return false;
    };
    let path = resource.path().trim_end_matches('/');
    let rest = server.path().strip_prefix(path);
    server.origin() == resource.origin()
        && rest.is_some_and(|it| it.is_empty() || it.starts_with('/'))
}

/// Judges the refusal of a token that the user gave.
pub(crate) fn refused_token(status: u16, challenges: &[Challenge]) -> Finding {
    let scope = challenges
        .iter()
        .find_map(Challenge::scope)
        .unwrap_or_default();
    let error = challenges
        .iter()
        .find_map(Challenge::error)
        .unwrap_or_default();
    if status == 403 || error == "insufficient_scope" {
        let what = match scope.is_empty() {
            true => format!("The server refuses the token with status {status}."),
            false => format!("The token lacks scopes: the server requires `{scope}`."),
        };
        return Finding::new(&codes::TOKEN_SCOPE, what);
    }
    let description = challenges
        .iter()
        .find_map(|it| it.param("error_description"));
    let why = description.or(Some(error)).filter(|it| !it.is_empty());
    let what = match why {
        Some(why) => format!("The server refuses the token with status {status}: {why}."),
        None => format!("The server refuses the token with status {status}."),
    };
    Finding::new(&codes::TOKEN_REFUSED, what)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SERVER: &str = "https://mcp.example/mcp";

    fn healthy() -> AuthFacts {
        let metadata = json!({"resource": SERVER, "authorization_servers": ["https://as.example"]});
        let issuer = json!({
            "issuer": "https://as.example",
            "authorization_endpoint": "https://as.example/authorize",
            "token_endpoint": "https://as.example/token",
            "registration_endpoint": "https://as.example/register",
            "code_challenge_methods_supported": ["S256"],
        });
        let challenge = r#"Bearer resource_metadata="https://mcp.example/.well-known/x""#;
        AuthFacts {
            challenges: Challenge::parse_all([challenge]),
            resource: Some((
                Url::parse("https://mcp.example/.well-known/x").unwrap(),
                metadata,
            )),
            failures: Vec::new(),
            issuer: Some(("https://as.example".into(), Some(issuer))),
        }
    }

    fn codes(facts: &AuthFacts) -> Vec<&'static str> {
        authorization(facts, SERVER)
            .iter()
            .map(|it| it.code.name)
            .collect()
    }

    #[test]
    fn complete_metadata_are_healthy() {
        assert!(codes(&healthy()).is_empty());
    }

    #[test]
    fn each_missing_or_wrong_part_is_named() {
        assert_eq!(codes(&AuthFacts::default()), ["auth-no-metadata"]);

        let mut unnamed = healthy();
        unnamed.challenges.clear();
        assert_eq!(codes(&unnamed), ["auth-no-challenge"]);

        let mut other = healthy();
        other.resource.as_mut().unwrap().1["resource"] = json!("https://other.example/mcp");
        assert_eq!(codes(&other), ["auth-resource-mismatch"]);

        let mut alone = healthy();
        alone.issuer = None;
        assert_eq!(codes(&alone), ["auth-no-server"]);

        let mut unknown = healthy();
        unknown.issuer = Some(("https://as.example/".into(), None));
        assert_eq!(codes(&unknown), ["auth-server-metadata"]);

        let mut poor = healthy();
        poor.issuer = Some(("https://as.example/".into(), Some(json!({"issuer": "x"}))));
        assert_eq!(
            codes(&poor),
            [
                "auth-issuer-mismatch",
                "auth-server-metadata",
                "auth-no-pkce",
                "auth-no-registration"
            ]
        );
    }

    #[test]
    fn a_resource_may_contain_the_server() {
        assert!(is_same_resource(SERVER, "https://mcp.example/"));
        assert!(is_same_resource(SERVER, "https://mcp.example:443/mcp/"));
        assert!(!is_same_resource(SERVER, "https://mcp.example/m"));
        assert!(!is_same_resource(SERVER, "http://mcp.example/mcp"));
    }

    #[test]
    fn a_refused_token_is_told_from_one_without_scopes() {
        let challenges = |text| Challenge::parse_all([text]);

        let scope = challenges(r#"Bearer error="insufficient_scope", scope="files:read""#);
        assert_eq!(refused_token(403, &scope).code.name, "token-scope");
        let invalid = challenges(r#"Bearer error="invalid_token""#);
        assert_eq!(refused_token(401, &invalid).code.name, "token-refused");
    }
}
