//! Hides secrets in commands and URLs before they are printed.

use std::borrow::Cow;

/// Returns the words of a command with those replaced that look like secrets.
pub(crate) fn redact_words<'a>(words: impl IntoIterator<Item = Cow<'a, str>>) -> Vec<String> {
    let mut redacted = Vec::new();
    let mut follows_secret_option = false;
    for word in words {
        let is_option = word.starts_with('-');
        let shown = match word.split_once('=') {
            Some((name, _)) if is_secret_name(name) => format!("{name}={REDACTED}"),
            _ if follows_secret_option && !is_option => REDACTED.to_owned(),
            _ if looks_like_secret(&word) => REDACTED.to_owned(),
            _ => redact_header(&redact_url(&word)),
        };
        follows_secret_option = is_option && !word.contains('=') && is_secret_name(&word);
        redacted.push(shown);
    }
    redacted
}

/// Hides the password and the values of the query in a URL. Other text is returned as it is.
pub(crate) fn redact_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (rest, fragment) = match rest.split_once('#') {
        Some((rest, fragment)) => (rest, format!("#{fragment}")),
        None => (rest, String::new()),
    };
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    let (authority, path) = match path.split_once('/') {
        Some((authority, path)) => (authority, format!("/{path}")),
        None => (path, String::new()),
    };
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{REDACTED}@{host}"),
        None => authority.to_owned(),
    };
    let query = query.map_or(String::new(), |query| {
        let hide = |pair: &str| match pair.split_once('=') {
            Some((name, _)) => format!("{name}={REDACTED}"),
            None => pair.to_owned(),
        };
        format!(
            "?{}",
            query.split('&').map(hide).collect::<Vec<_>>().join("&")
        )
    });
    format!("{scheme}://{authority}{path}{query}{fragment}")
}

/// Hides the value of `Name: value` if the name is that of a secret.
fn redact_header(word: &str) -> String {
    match word.split_once(':') {
        Some((name, value)) if is_secret_name(name) && !value.starts_with("//") => {
            format!("{name}: {REDACTED}")
        }
        _ => word.to_owned(),
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let parts = [
        "token",
        "secret",
        "password",
        "passwd",
        "apikey",
        "api-key",
        "api_key",
        "authorization",
        "credential",
        "cookie",
        "bearer",
        "access-key",
        "access_key",
        "private-key",
        "private_key",
    ];
    parts.iter().any(|part| name.contains(part)) || name == "--key" || name == "--auth"
}

/// Returns whether a word has the prefix of a well-known kind of token.
fn looks_like_secret(word: &str) -> bool {
    let prefixes = [
        "sk-",
        "sk_",
        "ghp_",
        "gho_",
        "ghs_",
        "ghu_",
        "github_pat_",
        "glpat-",
        "xoxb-",
        "xoxp-",
        "AKIA",
        "Bearer ",
        "eyJ",
        "ntn_",
        "hf_",
        "npm_",
    ];
    word.len() >= 16 && prefixes.iter().any(|prefix| word.starts_with(prefix))
}

const REDACTED: &str = "…";

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(words: &[&str]) -> String {
        redact_words(words.iter().map(|word| Cow::Borrowed(*word))).join(" ")
    }

    #[test]
    fn words_that_look_like_secrets_are_hidden() {
        for (words, expected) in [
            (
                &["npx", "-y", "server", "--root", "/tmp"][..],
                "npx -y server --root /tmp",
            ),
            (&["x", "--api-key", "abc", "y"], "x --api-key … y"),
            (
                &["x", "--token=abc", "--token", "--verbose"],
                "x --token=… --token --verbose",
            ),
            (&["x", "ghp_0123456789abcdef0123"], "x …"),
            (
                &["x", "--header", "Authorization: Bearer abc"],
                "x --header Authorization: …",
            ),
            (&["x", "API_KEY=abc"], "x API_KEY=…"),
            (
                &["x", "postgres://ada:pw@db/x?sslkey=k"],
                "x postgres://…@db/x?sslkey=…",
            ),
        ] {
            assert_eq!(redacted(words), expected);
        }
    }

    #[test]
    fn urls_keep_their_place_and_lose_their_secrets() {
        assert_eq!(redact_url("https://x.example/mcp"), "https://x.example/mcp");
        assert_eq!(
            redact_url("https://u:p@x.example:8/mcp?key=abc&b#f"),
            "https://…@x.example:8/mcp?key=…&b#f"
        );
        assert_eq!(redact_url("no url"), "no url");
    }
}
