//! The access tokens of clients, for upstreams that are called with them: [`FrontToken`], [`TokenCell`].
//!
//! ```text
//! ResourceServer::keep_token ──▶ FrontToken of a request ──▶ TokenCell ──▶ Authorizer of a connection to an upstream
//! ```
//!
//! A connection to such an upstream serves one principal. Its requests are signed with the token that the principal
//! presented last, so that a connection outlives the tokens.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bowline::Context;
use bowline::exchange::Principal;
use serde_json::{Map, Value};

/// The access token of a client, as an extension of its HTTP request. `Debug` hides it.
///
/// A layer that has verified the token adds it, together with the [`Principal`], if an upstream is called with the
/// client's token: [`credentials::guard`](crate::credentials) does. The bridge itself never reads the `Authorization`
/// header.
///
/// # Examples
///
/// ```
/// use bowline_bridge::FrontToken;
///
/// let token = FrontToken::new("eyJhbGciOi");
/// assert_eq!(format!("{token:?}"), "FrontToken(…)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct FrontToken(Arc<str>);

impl FrontToken {
    /// Creates the extension from a token that was verified.
    pub fn new(token: impl Into<Arc<str>>) -> Self {
        Self(token.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for FrontToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrontToken(…)")
    }
}

/// A token with the principal that it was verified for.
#[derive(Clone, Debug)]
pub(crate) struct ClientToken {
    principal: Principal,
    token: FrontToken,
}

impl ClientToken {
    /// Returns the token of a request. Returns `None` without a principal: the token was not verified, and could not be kept
    /// apart from the tokens of others.
    pub(crate) fn of(cx: &Context) -> Option<Self> {
        cx.principal().name()?;
        let head = cx.extensions().get::<http::request::Parts>()?;
        Some(Self {
            principal: cx.principal().clone(),
            token: head.extensions.get::<FrontToken>()?.clone(),
        })
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    pub(crate) fn token(&self) -> &FrontToken {
        &self.token
    }

    /// Returns what the tokens that may be used for each other have in common: the principal, the client and the
    /// scopes. A client of a user must not get the rights that the user gave to another client.
    pub(crate) fn key(&self) -> Arc<str> {
        let claims = self.claims();
        let client = claims.get("client_id").or_else(|| claims.get("azp"));
        let scopes: Vec<_> = self.principal.scopes().collect();
        format!("{:?} {client:?} {scopes:?}", self.principal.name()).into()
    }

    /// Returns whether only the holder of a key may use the token (DPoP, mutual TLS).
    pub(crate) fn is_bound(&self) -> bool {
        self.claims().contains_key("cnf")
    }

    pub(crate) fn is_expired(&self) -> bool {
        let now = tokio::time::Instant::now().into_std();
        self.principal.expires_at().is_some_and(|at| at <= now)
    }

    fn claims(&self) -> Map<String, Value> {
        let claims = self.principal.claims();
        claims
            .and_then(|claims| claims.decode().ok())
            .unwrap_or_default()
    }
}

/// The latest of the tokens that may be used for each other.
#[derive(Debug)]
pub(crate) struct TokenCell(Mutex<ClientToken>);

impl TokenCell {
    pub(crate) fn new(token: ClientToken) -> Self {
        Self(Mutex::new(token))
    }

    pub(crate) fn latest(&self) -> ClientToken {
        lock(&self.0).clone()
    }

    pub(crate) fn set(&self, token: ClientToken) {
        *lock(&self.0) = token;
    }
}

/// The cells of the connections to one upstream that belong to no connection of a client.
#[derive(Debug, Default)]
pub(crate) struct TokenTable(Mutex<BTreeMap<Arc<str>, Weak<TokenCell>>>);

impl TokenTable {
    /// Returns the cell for a token, which becomes its latest.
    pub(crate) fn cell(&self, token: ClientToken) -> Arc<TokenCell> {
        let key = token.key();
        let mut cells = lock(&self.0);
        if let Some(cell) = cells.get(&key).and_then(Weak::upgrade) {
            cell.set(token);
            return cell;
        }
        // As many as there are connections are left.
        cells.retain(|_, cell| cell.strong_count() > 0);
        let cell = Arc::new(TokenCell::new(token));
        cells.insert(key, Arc::downgrade(&cell));
        cell
    }

    /// Makes a token the latest of its cell, if a connection uses one.
    pub(crate) fn refresh(&self, token: ClientToken) {
        let cell = lock(&self.0).get(&token.key()).and_then(Weak::upgrade);
        if let Some(cell) = cell {
            cell.set(token);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use bowline::Json;

    use super::*;

    fn token(name: &str, client: &str, scopes: &[&str], token: &str) -> ClientToken {
        let claims = Json::from(serde_json::json!({"client_id": client}));
        ClientToken {
            principal: Principal::named(name)
                .with_scopes(scopes.iter().copied())
                .with_claims(claims),
            token: FrontToken::new(token),
        }
    }

    #[test]
    fn a_cell_is_shared_by_tokens_of_one_principal_client_and_scopes_only() {
        let table = TokenTable::default();

        let first = table.cell(token("ada", "editor", &["read"], "1"));
        let renewed = table.cell(token("ada", "editor", &["read"], "2"));
        let others = [
            table.cell(token("bob", "editor", &["read"], "3")),
            table.cell(token("ada", "shell", &["read"], "4")),
            table.cell(token("ada", "editor", &["read", "write"], "5")),
        ];

        assert!(Arc::ptr_eq(&first, &renewed));
        assert_eq!(first.latest().token().expose(), "2");
        let others = others.each_ref().map(|cell| cell.latest().token().clone());
        assert_eq!(others, ["3", "4", "5"].map(FrontToken::new));
    }

    #[test]
    fn cells_without_a_connection_are_removed() {
        let table = TokenTable::default();
        for number in 0..100 {
            drop(table.cell(token(&format!("user {number}"), "editor", &[], "1")));
        }
        assert!(lock(&table.0).len() <= 1);

        table.refresh(token("new", "editor", &[], "2"));
        assert!(!lock(&table.0).contains_key(&token("new", "editor", &[], "2").key()));
    }

    #[test]
    fn no_form_of_a_token_shows_it() {
        let cell = TokenTable::default().cell(token("ada", "editor", &[], "hunter2"));
        assert!(!format!("{cell:?}").contains("hunter2"));
    }
}
