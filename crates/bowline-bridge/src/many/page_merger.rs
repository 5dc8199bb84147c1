//! [`PageMerger`]: one page of a merged list, from pages of the servers.
//!
//! ```text
//!   files: [a b] → [c]      merged:  [fs__a fs__b]           cursor (files, its cursor)
//!   git:   [d]                       [fs__c git__d web__e]   end
//!   web:   [e]
//! ```

use std::collections::BTreeSet;

use bowline::{ErrorCode, Json, RpcError};
use serde_json::value::RawValue;

use super::cursor::PageCursor;
use super::names::{NameRefused, Names};
use super::raw_object::RawObject;
use crate::config::ItemKind;

/// Merges pages of several servers into one page.
///
/// A page of the merged list continues from server to server, and ends where a server has a further page, or after
/// 4 MiB. Servers come in the order of [`Names`]. If each has one page, so has the merged list, which matters to clients
/// that read no further. Every item is visited once, if the servers' own lists hold that promise.
///
/// Names of tools and prompts get their prefix. Everything else in an item stays as it is, to the letter. The page has
/// the smallest `ttlMs` of its parts, and none if a part has none; it is public only if all parts are.
///
/// The merger does no I/O. Pages that are needed later may be requested ahead, see [`PageMerger::upcoming`].
///
/// # Examples
///
/// ```
/// use bowline::Json;
/// use bowline_bridge::config::ItemKind;
/// use bowline_bridge::many::{Names, PageMerger};
///
/// let names = Names::new("__", [("files", Some("fs")), ("git", None)])?;
/// let mut merger = PageMerger::new(&names, ItemKind::Tool, ["files", "git"], None)?;
/// while let Some(position) = merger.position() {
///     // … the response of `position.server()` to `tools/list` with `position.cursor()`
///     let page = Json::parse(r#"{"tools": [{"name": "log", "x": 1.0}], "ttlMs": 60}"#)?;
///     merger.add_page(&page, |_name| true)?;
/// }
/// let page = merger.finish();
/// assert_eq!(page.as_str(), r#"{"tools":[{"name":"fs__log","x":1.0},{"name":"git__log","x":1.0}],"ttlMs":60}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PageMerger<'a> {
    names: &'a Names,
    kind: ItemKind,
    servers: Vec<String>,
    /// The index of the server whose page is needed next.
    at: usize,
    cursor: Option<String>,
    /// How many pages of this server come before it.
    pages: u32,
    /// Whether the page ends here, although servers remain.
    is_full: bool,
    /// The items, separated by commas.
    items: Vec<u8>,
    parts: usize,
    hints: CacheHints,
    /// Members that are not ours, of the first page that has them.
    other: Vec<(String, Json)>,
    /// Their names.
    other_names: BTreeSet<String>,
    /// The `_meta` of the first page.
    meta: Option<Json>,
    stale: Vec<String>,
    refused: Vec<NameRefused>,
}

/// What a [`PageMerger`] needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePosition<'m> {
    server: &'m str,
    cursor: Option<&'m str>,
}

/// The caching hints of the parts so far.
#[derive(Debug, Default)]
struct CacheHints {
    /// `None` before the first part; then `Some(None)` if a part has no `ttlMs`.
    ttl_ms: Option<Option<u64>>,
    /// `None` before the first part; then the scope, if all parts have one.
    scope: Option<Option<Scope>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Public,
    Private,
}

impl PagePosition<'_> {
    /// Returns the server to request a page from.
    #[must_use]
    pub fn server(&self) -> &str {
        self.server
    }

    /// Returns the cursor of the server; `None` for its first page.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor
    }
}

impl<'a> PageMerger<'a> {
    /// Starts a page at a client's cursor.
    ///
    /// `servers` are those that have such a list and that the principal may use, in the order of `names`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_PARAMS`] if the cursor is invalid, of another configuration, or of a server that is not
    /// among `servers`.
    pub fn new<'s>(
        names: &'a Names,
        kind: ItemKind,
        servers: impl IntoIterator<Item = &'s str>,
        cursor: Option<&str>,
    ) -> Result<Self, RpcError> {
        let servers: Vec<_> = servers.into_iter().map(str::to_owned).collect();
        let (at, cursor, pages) = match cursor {
            None => (0, None, 0),
            Some(text) => {
                let cursor = PageCursor::decode(text, names.generation())?;
                let (server, cursor, pages) = cursor.into_parts();
                let at = servers.iter().position(|it| *it == server).ok_or_else(|| {
                    RpcError::new(
                        ErrorCode::INVALID_PARAMS,
                        "the list of this cursor is not available",
                    )
                })?;
                (at, cursor, pages)
            }
        };
        Ok(Self {
            names,
            kind,
            servers,
            at,
            cursor,
            pages,
            is_full: false,
            items: Vec::new(),
            parts: 0,
            hints: CacheHints::default(),
            other: Vec::new(),
            other_names: BTreeSet::new(),
            meta: None,
            stale: Vec::new(),
            refused: Vec::new(),
        })
    }

    /// Returns which page is needed next; `None` if the merged page is complete.
    #[must_use]
    pub fn position(&self) -> Option<PagePosition<'_>> {
        let server = self.servers.get(self.at).filter(|_| !self.is_full)?;
        Some(PagePosition {
            server,
            cursor: self.cursor.as_deref(),
        })
    }

    /// Returns the servers whose first pages will be needed, if those before them have no further pages. They may be
    /// requested at the same time as that of [`position`](Self::position).
    pub fn upcoming(&self) -> impl Iterator<Item = &str> {
        let after = self.servers.iter().skip(self.at + 1);
        after.map(String::as_str).filter(|_| !self.is_full)
    }

    /// Adds the page that is needed. `keep` decides by the name of an item, or its URI, as the server has it.
    ///
    /// Items without a name, or with two, are left out.
    ///
    /// # Errors
    ///
    /// If the page is not an object with such a list. The server can then be [skipped](Self::skip).
    pub fn add_page(
        &mut self,
        page: &Json,
        keep: impl FnMut(&str) -> bool,
    ) -> Result<(), serde_json::Error> {
        let next = self.add(page, keep)?;
        // A server that returns the same cursor again, or cursors without end, would keep clients in a loop, and the
        // servers after it hidden.
        self.pages = self.pages.saturating_add(1);
        let next = next.filter(|next| Some(next) != self.cursor.as_ref() && self.pages < MAX_PAGES);
        match next {
            Some(next) => {
                self.cursor = Some(next);
                self.is_full = true;
            }
            None => self.advance(),
        }
        Ok(())
    }

    /// Adds what a server that cannot be reached has offered, see [`LastLists`](super::LastLists). The page must not be
    /// cached, and its `_meta` names the server in `bowline/stale`.
    ///
    /// # Errors
    ///
    /// As for [`add_page`](Self::add_page).
    pub fn add_stale(
        &mut self,
        page: &Json,
        keep: impl FnMut(&str) -> bool,
    ) -> Result<(), serde_json::Error> {
        self.add(page, keep)?;
        self.hints.ttl_ms = Some(Some(0));
        self.hints.scope = Some(Some(Scope::Private));
        self.stale.extend(self.servers.get(self.at).cloned());
        self.advance();
        Ok(())
    }

    /// Leaves out a server that cannot be reached. The page must not be cached.
    pub fn skip(&mut self) {
        self.hints.ttl_ms = Some(Some(0));
        self.advance();
    }

    /// Leaves out a server that has no such list.
    pub fn skip_unsupported(&mut self) {
        self.advance();
    }

    /// Makes the page private, because items were left out by principal.
    pub fn set_private(&mut self) {
        self.hints.scope = Some(Some(Scope::Private));
    }

    /// Returns the names that could not be offered so far.
    #[must_use]
    pub fn refused(&self) -> &[NameRefused] {
        &self.refused
    }

    /// Returns the merged page.
    #[must_use]
    pub fn finish(self) -> Json {
        let mut text = Vec::with_capacity(self.items.len() + 256);
        text.extend_from_slice(b"{\"");
        text.extend_from_slice(member_of(self.kind).as_bytes());
        text.extend_from_slice(b"\":[");
        text.extend_from_slice(&self.items);
        text.push(b']');
        let mut add = |name: &str, value: &[u8]| {
            text.push(b',');
            Json::push_string(&mut text, name);
            text.push(b':');
            text.extend_from_slice(value);
        };
        if let Some(server) = self.servers.get(self.at) {
            let cursor = PageCursor::new(server, self.cursor, self.names.generation());
            let cursor = cursor.after_pages(self.pages).encode();
            add("nextCursor", format!("\"{cursor}\"").as_bytes());
        }
        if let Some(Some(ttl)) = self.hints.ttl_ms {
            add("ttlMs", ttl.to_string().as_bytes());
        }
        match self.hints.scope {
            Some(Some(Scope::Public)) => add("cacheScope", b"\"public\""),
            Some(Some(Scope::Private)) => add("cacheScope", b"\"private\""),
            _ => {}
        }
        for (name, value) in &self.other {
            add(name, value.as_bytes());
        }
        if !self.stale.is_empty() {
            let stale = serde_json::json!({ "bowline/stale": self.stale });
            add("_meta", stale.to_string().as_bytes());
        } else if let Some(meta) = self.meta.filter(|_| self.parts == 1) {
            add("_meta", meta.as_bytes());
        }
        text.push(b'}');
        Json::from_valid(text.into())
    }

    /// Adds the items of a page and returns its cursor.
    fn add(
        &mut self,
        page: &Json,
        mut keep: impl FnMut(&str) -> bool,
    ) -> Result<Option<String>, serde_json::Error> {
        let page = RawObject::parse(page.as_str())?;
        let missing = || serde::de::Error::custom("expected a list");
        let items = page.get(member_of(self.kind)).ok_or_else(missing)?;
        let items: Vec<&RawValue> = serde_json::from_str(items.get())?;
        for item in items {
            self.add_item(item, &mut keep);
        }
        self.parts += 1;
        let number = |name| page.get(name).and_then(|it| it.get().parse().ok());
        self.hints
            .add(number("ttlMs"), page.text("cacheScope").as_deref());
        for (name, value) in page.iter().filter(|(name, _)| is_other(self.kind, name)) {
            if name == "_meta" {
                self.meta = Some(Json::from(value.to_owned()));
            } else if self.other_names.insert(name.to_owned()) {
                self.other
                    .push((name.to_owned(), Json::from(value.to_owned())));
            }
        }
        let next = page.text("nextCursor").map(std::borrow::Cow::into_owned);
        Ok(next)
    }

    fn add_item(&mut self, item: &RawValue, keep: &mut impl FnMut(&str) -> bool) {
        let (Ok(object), Some(server)) = (RawObject::parse(item.get()), self.servers.get(self.at))
        else {
            return;
        };
        let Some(name) = object.text(key_of(self.kind)).filter(|name| keep(name)) else {
            return;
        };
        let outer = match self.kind {
            ItemKind::Tool | ItemKind::Prompt => self.names.outer(server, &name),
            ItemKind::Resource | ItemKind::ResourceTemplate => Ok((&*name).into()),
        };
        let outer = match outer {
            Ok(outer) => outer,
            Err(refused) => return self.refused.push(refused),
        };
        if !self.items.is_empty() {
            self.items.push(b',');
        }
        match outer == name {
            true => self.items.extend_from_slice(item.get().as_bytes()),
            false => object.write_with(&mut self.items, key_of(self.kind), &outer),
        }
    }

    fn advance(&mut self) {
        self.at += 1;
        self.cursor = None;
        self.pages = 0;
        // A page of many servers must not exceed what a client accepts in one message.
        self.is_full = self.items.len() > MAX_PAGE_BYTES && self.at < self.servers.len();
    }
}

impl CacheHints {
    fn add(&mut self, ttl_ms: Option<u64>, scope: Option<&str>) {
        let smallest = match self.ttl_ms {
            None => ttl_ms,
            Some(before) => before.zip(ttl_ms).map(|(a, b)| a.min(b)),
        };
        self.ttl_ms = Some(smallest);
        let scope = scope.map(|scope| match scope {
            "public" => Scope::Public,
            _ => Scope::Private,
        });
        let is_private = |scope| scope == Some(Scope::Private);
        self.scope = Some(match self.scope {
            None => scope,
            Some(before) if is_private(before) || is_private(scope) => Some(Scope::Private),
            Some(before) => before.and(scope),
        });
    }
}

/// Returns the member of a page that contains the items.
pub(super) fn member_of(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool => "tools",
        ItemKind::Prompt => "prompts",
        ItemKind::Resource => "resources",
        ItemKind::ResourceTemplate => "resourceTemplates",
    }
}

/// Returns the member of an item that identifies it.
pub(super) fn key_of(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool | ItemKind::Prompt => "name",
        ItemKind::Resource => "uri",
        ItemKind::ResourceTemplate => "uriTemplate",
    }
}

/// Returns whether a member of a page passes as it is. `resultType` is set by the front.
fn is_other(kind: ItemKind, member: &str) -> bool {
    let ours = ["nextCursor", "ttlMs", "cacheScope", "resultType"];
    member != member_of(kind) && !ours.contains(&member)
}

/// How many pages of a list one server may have. The items of further ones are not reached.
pub(crate) const MAX_PAGES: u32 = 1000;
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
