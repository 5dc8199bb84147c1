//! Fetches the OAuth metadata of a server that requires authorization.

use bowline::http::RedactedUrl;
use bowline::http::client::Challenge;
use serde_json::Value;
use url::Url;

use super::http::{Endpoint, HttpAnswer, Outgoing};
use super::socket::Address;
use http::{HeaderMap, Method};

/// What a client learns about authorization.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuthFacts {
    /// The challenges of the refusal.
    pub(crate) challenges: Vec<Challenge>,
    /// The resource metadata, with its URL.
    pub(crate) resource: Option<(Url, Value)>,
    /// Why each document that was tried could not be used.
    pub(crate) failures: Vec<String>,
    /// The issuer that the resource metadata names first, with its metadata.
    pub(crate) issuer: Option<(String, Option<Value>)>,
}

/// Reads the challenges of a response.
pub(crate) fn challenges(answer: &HttpAnswer) -> Vec<Challenge> {
    let values = answer.headers.get_all(http::header::WWW_AUTHENTICATE);
    let texts = values.iter().filter_map(|value| value.to_str().ok());
    Challenge::parse_all(texts)
}

/// Fetches the documents that a client fetches before it signs in. None of the user's headers is sent.
pub(crate) async fn examine_authorization(endpoint: &Endpoint, refusal: &HttpAnswer) -> AuthFacts {
    let mut facts = AuthFacts {
        challenges: challenges(refusal),
        ..AuthFacts::default()
    };
    let Ok(server) = Url::parse(&endpoint.uri.to_string()) else {
        return facts;
    };
    let named = facts
        .challenges
        .iter()
        .find_map(Challenge::resource_metadata);
    let urls = match named.map(Url::parse) {
        Some(Ok(url)) => vec![url],
        Some(Err(error)) => {
            facts.failures.push(format!("resource_metadata: {error}"));
            Vec::new()
        }
        None => resource_urls(&server),
    };
    facts.resource = first(endpoint, &server, urls, &mut facts.failures).await;
    let issuer = facts.resource.as_ref().and_then(|(_, metadata)| {
        let issuer = metadata["authorization_servers"][0].as_str()?;
        Some(issuer.to_owned())
    });
    if let Some(issuer) = issuer {
        let urls = Url::parse(&issuer)
            .map(|url| issuer_urls(&url))
            .unwrap_or_default();
        let metadata = first(endpoint, &server, urls, &mut facts.failures).await;
        facts.issuer = Some((issuer, metadata.map(|(_, metadata)| metadata)));
    }
    facts
}

/// Returns the first of the documents that exists.
async fn first(
    endpoint: &Endpoint,
    server: &Url,
    urls: Vec<Url>,
    failures: &mut Vec<String>,
) -> Option<(Url, Value)> {
    for url in urls {
        match fetch(endpoint, server, &url).await {
            Ok(document) => return Some((url, document)),
            Err(why) => failures.push(format!("{}: {why}", RedactedUrl::new(url))),
        }
    }
    None
}

async fn fetch(endpoint: &Endpoint, server: &Url, url: &Url) -> Result<Value, String> {
    if !may_be_fetched(server, url) {
        return Err("not fetched, because it is not a public https:// address".to_owned());
    }
    let uri: http::Uri = url.as_str().parse().map_err(|_| "not a URL".to_owned())?;
    let address = Address::of(&uri).ok_or("not a URL")?;
    let endpoint = Endpoint {
        uri,
        address,
        headers: HeaderMap::new(),
        patience: endpoint.patience,
    };
    let get = Outgoing::new(Method::GET).with("accept", "application/json");
    let answer = endpoint
        .send_for_text(&get)
        .await
        .map_err(|failure| failure.to_string())?;
    if answer.0 != 200 {
        return Err(format!("status {}", answer.0));
    }
    let document: Value = serde_json::from_slice(&answer.1).map_err(|_| "not JSON".to_owned())?;
    document
        .is_object()
        .then_some(document)
        .ok_or_else(|| "not a JSON object".to_owned())
}

/// Returns whether a URL that a server named may be fetched: from the host of the server itself, or publicly over TLS.
/// Otherwise a server could make the doctor send requests into networks that it cannot reach.
fn may_be_fetched(server: &Url, url: &Url) -> bool {
    if url.host() == server.host() {
        return matches!(url.scheme(), "http" | "https");
    }
    let is_local = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        Some(url::Host::Ipv6(ip)) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
        None => return false,
    };
    let server_is_local = server
        .host_str()
        .is_some_and(|it| matches!(it, "localhost" | "127.0.0.1" | "[::1]"));
    match is_local {
        true => server_is_local,
        false => url.scheme() == "https",
    }
}

/// Returns where the metadata of a protected resource may be.
fn resource_urls(server: &Url) -> Vec<Url> {
    well_known(
        server,
        &["/.well-known/oauth-protected-resource{path}"],
        true,
    )
}

/// Returns where the metadata of an authorization server may be.
fn issuer_urls(issuer: &Url) -> Vec<Url> {
    let places = [
        "/.well-known/oauth-authorization-server{path}",
        "/.well-known/openid-configuration{path}",
        "{path}/.well-known/openid-configuration",
    ];
    well_known(issuer, &places, false)
}

fn well_known(base: &Url, places: &[&str], also_at_root: bool) -> Vec<Url> {
    let path = base.path().trim_end_matches('/');
    let mut urls: Vec<Url> = Vec::new();
    let mut add = |path: &str| {
        let mut url = base.clone();
        url.set_path(path);
        url.set_query(None);
        url.set_fragment(None);
        if !urls.contains(&url) {
            urls.push(url);
        }
    };
    for place in places {
        add(&place.replace("{path}", path));
    }
    if also_at_root {
        add(&places
            .first()
            .map(|it| it.replace("{path}", ""))
            .unwrap_or_default());
    }
    urls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn metadata_are_looked_for_where_clients_look() {
        let texts = |urls: Vec<Url>| urls.into_iter().map(String::from).collect::<Vec<_>>();

        assert_eq!(
            texts(resource_urls(&url("https://a.example/x/mcp?y"))),
            [
                "https://a.example/.well-known/oauth-protected-resource/x/mcp",
                "https://a.example/.well-known/oauth-protected-resource",
            ]
        );
        assert_eq!(texts(issuer_urls(&url("https://as.example"))).len(), 2);
        assert_eq!(
            texts(issuer_urls(&url("https://as.example/t")))[2],
            "https://as.example/t/.well-known/openid-configuration"
        );
    }

    #[test]
    fn a_public_server_cannot_send_the_doctor_into_a_private_network() {
        let public = url("https://mcp.example/mcp");
        for refused in [
            "http://10.0.0.1/",
            "https://10.0.0.1/",
            "https://localhost/",
            "http://as.example/",
        ] {
            assert!(!may_be_fetched(&public, &url(refused)), "{refused}");
        }
        assert!(may_be_fetched(&public, &url("https://as.example/")));
        let local = url("http://127.0.0.1:8000/mcp");
        assert!(may_be_fetched(&local, &url("http://127.0.0.1:9000/")));
    }
}
