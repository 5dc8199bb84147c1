//! Hides secrets in commands before they are printed.

use std::borrow::Cow;

use bowline::http::RedactedUrl;

/// Returns the words of a command with those replaced that look like secrets.
pub(crate) fn redact_words<'a>(words: impl IntoIterator<Item = Cow<'a, str>>) -> Vec<String> {
    let mut redacted = Vec::new();
    let mut follows_secret_option = false;
    for word in words {
        let is_option = word.starts_with('-');
        let shown = match word.split_once('=') {
            // Not of a URL, which may have user information before the first `=`.
            Some((name, _)) if is_secret_name(name) && !name.contains("://") => {
                format!("{name}={REDACTED}")
            }
            _ if follows_secret_option && !is_option => REDACTED.to_owned(),
            _ if looks_like_secret(&word) => REDACTED.to_owned(),
            _ if word.contains("://") => RedactedUrl::new(&word).to_string(),
            _ => redact_header(&word),
        };
        follows_secret_option = is_option && !word.contains('=') && is_secret_name(&word);
        redacted.push(shown);
    }
    redacted
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

/// Returns whether the value of an option, a variable or a header with this name is a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
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
                &["x", "https://ada:pw@h/mcp?apiKey=k"],
                "x https://…@h/mcp?apiKey=…",
            ),
            (
                &["x", "postgres://ada:pw@db/x?sslkey=k"],
                "x postgres://…@db/x?sslkey=…",
            ),
        ] {
            assert_eq!(redacted(words), expected);
        }
    }
}
