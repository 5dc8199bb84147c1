//! Whether what is sent to a URL can be read by others on its way.

use std::io::{self, Write as _};

use url::{Host, Url};

use crate::redact::is_secret_name;
use crate::target::UrlTarget;

/// Returns whether a URL has plain HTTP to another machine.
pub(crate) fn is_exposed(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => true,
    };
    url.scheme() == "http" && !is_loopback
}

/// Returns the name or address in a URL.
pub(crate) fn host_of(url: &str) -> Option<String> {
    Url::parse(url).ok()?.host_str().map(str::to_owned)
}

/// Returns a warning if headers with credentials would be sent to another machine unencrypted.
pub(crate) fn warning(target: &UrlTarget) -> Option<String> {
    let names = target.headers.iter().map(|header| header.name.as_str());
    exposed_headers(&target.url, names)
}

/// As [`warning`], of the names of headers.
pub(crate) fn exposed_headers<'a>(
    url: &str,
    names: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let secret = names.filter(|name| is_secret_name(name));
    let secret: Vec<String> = secret.map(|name| format!("`{name}`")).collect();
    if secret.is_empty() || !is_exposed(url) {
        return None;
    }
    Some(format!(
        "{} is sent to {} unencrypted, and can be read on its way; use https://",
        secret.join(", "),
        host_of(url).unwrap_or_default()
    ))
}

/// Prints a warning to stderr.
pub(crate) fn print_warning(warning: Option<String>) {
    if let Some(warning) = warning {
        // Fails only if stderr is closed.
        let _ = writeln!(io::stderr().lock(), "bowline: warning: {warning}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_to_another_machine_is_exposed() {
        for url in [
            "http://mcp:8000/mcp",
            "http://192.0.2.1/mcp",
            "http://[2001:db8::1]:1/",
            "http://x.example",
        ] {
            assert!(is_exposed(url), "{url}");
        }
        for url in [
            "https://x.example",
            "http://127.0.0.1:1/mcp",
            "http://[::1]:1/mcp",
            "http://localhost",
            "http://a.localhost/",
        ] {
            assert!(!is_exposed(url), "{url}");
        }
    }

    #[test]
    fn only_headers_with_credentials_are_warned_of() {
        let warning = |url: &str, names: &[&str]| exposed_headers(url, names.iter().copied());
        let far = "http://x.example/mcp?key=secret";

        for name in [
            "Authorization",
            "cookie",
            "X-Api-Key",
            "x-auth-token",
            "Proxy-Authorization",
        ] {
            let text = warning(far, &["Accept-Language", name]).unwrap();
            assert!(
                text.starts_with(&format!("`{name}` is sent to x.example")),
                "{text}"
            );
            assert_eq!(warning("http://localhost:1/mcp", &[name]), None);
            assert_eq!(warning("https://x.example", &[name]), None);
        }
        assert_eq!(warning(far, &["Accept-Language", "X-Tenant"]), None);
    }
}
