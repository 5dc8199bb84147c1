//! Pagination of `tools/list` and the other list methods.
//!
//! A list is sorted by name, and a cursor holds the name after which its page begins, so it stays valid while entries
//! are added and removed. The pages of a list that is the same for every caller are encoded at its first request, for
//! each era, and cached until the list changes.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_core::Outcome;
use bowline_core::era::Dialect;
use bowline_types::{CacheScope, ErrorCode, Implementation, Json, ResultType, RpcError, meta_key};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::registry::Snapshot;
use super::router::encode;
use super::tool::invalid_params;
use super::visibility::Visible;
use crate::exchange::Context;

/// An entry of a list.
pub(super) trait ListEntry: Clone + Visible {
    type Definition: Serialize;
    /// The member of the result that holds the list. Part of the cursor checksum: a cursor is valid for one list.
    const MEMBER: &'static str;

    /// Returns the definition for the era of `dialect`, with this name.
    fn list_definition(&self, name: &str, dialect: &Dialect) -> Self::Definition;
}

/// Caching hints of a result: `ttlMs` and `cacheScope`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CacheHints {
    pub(super) ttl_ms: u64,
    pub(super) scope: CacheScope,
}

impl CacheHints {
    pub(super) fn new(ttl: Duration, scope: CacheScope) -> Self {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self { ttl_ms, scope }
    }
}

/// The page size of a list, and the other members of each page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paging<'a> {
    /// The maximum number of entries on a page; `None` for one page.
    pub(super) size: Option<usize>,
    pub(super) cache: Option<&'a CacheHints>,
    /// Whether the list may differ between callers, so that its scope is private whatever `cache` says.
    pub(super) is_private: bool,
    pub(super) identity: &'a Implementation,
    /// Identifies the settings above: wires that started before a change of them still use the earlier ones.
    pub(super) revision: u64,
    /// The caller's dialect.
    pub(super) dialect: &'static Dialect,
}

/// The encoded pages of a list for each era, filled by the first request.
#[derive(Clone, Debug)]
pub(super) struct CachedPages {
    /// The [`Paging::revision`] that the pages are encoded with.
    revision: u64,
    modern: OnceLock<EncodedPages>,
    legacy: OnceLock<EncodedPages>,
}

impl CachedPages {
    pub(super) fn for_revision(revision: u64) -> Self {
        Self {
            revision,
            modern: OnceLock::new(),
            legacy: OnceLock::new(),
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the cache for these settings; `None` for a wire that started with other settings than the latest.
    fn of(&self, paging: &Paging<'_>) -> Option<&OnceLock<EncodedPages>> {
        let pages = match paging.dialect.is_modern() {
            true => &self.modern,
            false => &self.legacy,
        };
        (paging.revision == self.revision).then_some(pages)
    }
}

/// The pages of a list, encoded.
#[derive(Clone, Debug)]
struct EncodedPages {
    first: Json,
    /// By the name after which the page begins.
    later: BTreeMap<String, Json>,
}

impl Paging<'_> {
    /// Returns the settings for a list that may differ between callers.
    fn private(self) -> Self {
        Self {
            is_private: true,
            ..self
        }
    }
}

/// Returns the page that `params` request, with the entries that are visible to the caller.
pub(super) fn list<T: ListEntry>(
    cx: &Context,
    snapshot: &Snapshot<T>,
    params: &Json,
    paging: &Paging<'_>,
) -> Outcome {
    if snapshot.is_public() {
        return list_public(snapshot, params, paging);
    }
    let after = requested_start::<T>(params)?;
    ListPage::after(after.as_deref(), Some(cx), snapshot, &paging.private()).encode()
}

/// Returns the page that `params` request of a list that every caller sees.
fn list_public<T: ListEntry>(
    snapshot: &Snapshot<T>,
    params: &Json,
    paging: &Paging<'_>,
) -> Outcome {
    let after = requested_start::<T>(params)?;
    let after = after.as_deref();
    let Some(cached) = snapshot.pages.of(paging) else {
        return ListPage::after(after, None, snapshot, paging).encode();
    };
    let pages = match cached.get() {
        Some(pages) => pages,
        None => {
            // Outside of `get_or_init`, whose closure cannot fail.
            let pages = EncodedPages::encode(snapshot, paging)?;
            cached.get_or_init(|| pages)
        }
    };
    match pages.get(after) {
        Some(page) => Ok(page.clone()),
        // The page boundaries have changed since the cursor was issued.
        None => ListPage::after(after, None, snapshot, paging).encode(),
    }
}

/// Returns the page after this name, with `extra` and the entries that are visible to the caller, which take
/// precedence. Never cached, because `extra` may differ between callers and requests.
pub(super) fn list_with<T: ListEntry>(
    mut extra: BTreeMap<String, T::Definition>,
    after: Option<&str>,
    cx: &Context,
    snapshot: &Snapshot<T>,
    paging: &Paging<'_>,
) -> Outcome {
    let visible = visible_entries(after, Some(cx), snapshot, paging.dialect);
    extra.extend(visible.map(|(name, definition)| (name.clone(), definition)));
    let rest = extra.into_iter();
    let rest = rest.skip_while(|(name, _)| after.is_some_and(|after| &**name <= after));
    ListPage::<T>::of(rest, &paging.private()).encode()
}

/// Returns the entries after this name that are visible to the caller; without one, all.
fn visible_entries<'a, T: ListEntry>(
    after: Option<&str>,
    caller: Option<&'a Context>,
    snapshot: &'a Snapshot<T>,
    dialect: &'a Dialect,
) -> impl Iterator<Item = (&'a String, T::Definition)> {
    let rest = snapshot.entries_after(after);
    let visible = rest.filter(move |(_, entry)| caller.is_none_or(|cx| entry.is_visible_to(cx)));
    visible.map(|(name, entry)| (name, entry.item.list_definition(name, dialect)))
}

/// Returns the name after which the requested page begins; `None` for the first page.
///
/// # Errors
///
/// If the cursor was not issued for this list.
pub(super) fn requested_start<T: ListEntry>(params: &Json) -> Result<Option<String>, RpcError> {
    #[derive(Deserialize)]
    struct ListParams {
        cursor: Option<String>,
    }

    let ListParams { cursor } = params.decode().map_err(invalid_params)?;
    let Some(cursor) = cursor else {
        return Ok(None);
    };
    match decode_cursor::<T>(&cursor) {
        Some(after) => Ok(Some(after)),
        None => Err(RpcError::new(ErrorCode::INVALID_PARAMS, "invalid cursor")),
    }
}

impl EncodedPages {
    /// Encodes a list that every caller sees.
    fn encode<T: ListEntry>(snapshot: &Snapshot<T>, paging: &Paging<'_>) -> Result<Self, RpcError> {
        let page = ListPage::after(None, None, snapshot, paging);
        let mut pages = Self {
            first: page.encode()?,
            later: BTreeMap::new(),
        };
        let mut next = page.next_start;
        while let Some(after) = next {
            let page = ListPage::after(Some(&after), None, snapshot, paging);
            pages.later.insert(after, page.encode()?);
            next = page.next_start;
        }
        Ok(pages)
    }

    /// Returns the page that begins after this name, or the first one.
    fn get(&self, after: Option<&str>) -> Option<&Json> {
        match after {
            Some(after) => self.later.get(after),
            None => Some(&self.first),
        }
    }
}

/// A page before encoding.
struct ListPage<'a, T: ListEntry> {
    items: Vec<T::Definition>,
    /// The name after which the next page begins, if there is one.
    next_start: Option<String>,
    paging: &'a Paging<'a>,
}

impl<'a, T: ListEntry> ListPage<'a, T> {
    /// Takes the entries after this name that are visible to the caller, up to the page size; without a caller, of all.
    fn after(
        after: Option<&str>,
        caller: Option<&Context>,
        snapshot: &Snapshot<T>,
        paging: &'a Paging<'a>,
    ) -> Self {
        Self::of(
            visible_entries(after, caller, snapshot, paging.dialect),
            paging,
        )
    }

    /// Takes entries of `rest`, up to the page size.
    fn of<N: AsRef<str>>(
        mut rest: impl Iterator<Item = (N, T::Definition)>,
        paging: &'a Paging<'a>,
    ) -> Self {
        let mut items = Vec::new();
        let mut last = None;
        for (name, definition) in rest.by_ref().take(paging.size.unwrap_or(usize::MAX)) {
            items.push(definition);
            last = Some(name);
        }
        let last = last.filter(|_| rest.next().is_some());
        Self {
            items,
            next_start: last.map(|name| name.as_ref().to_owned()),
            paging,
        }
    }

    fn encode(&self) -> Outcome {
        encode(self)
    }
}

/// The members that every result must have come first: `seal` reads no further, and returns the page without copying
/// it.
impl<T: ListEntry> Serialize for ListPage<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.paging.dialect.has_result_type {
            let cache = self.paging.cache.unwrap_or(&NO_CACHE);
            let scope = match self.paging.is_private {
                true => &CacheScope::PRIVATE,
                false => &cache.scope,
            };
            let signature = BTreeMap::from([(meta_key::SERVER_INFO, self.paging.identity)]);
            map.serialize_entry("resultType", &ResultType::COMPLETE)?;
            map.serialize_entry("ttlMs", &cache.ttl_ms)?;
            map.serialize_entry("cacheScope", scope)?;
            map.serialize_entry("_meta", &signature)?;
        }
        map.serialize_entry(T::MEMBER, &self.items)?;
        if let Some(start) = &self.next_start {
            map.serialize_entry("nextCursor", &encode_cursor::<T>(start))?;
        }
        map.end()
    }
}

/// Returns the cursor of the page after `name`.
fn encode_cursor<T: ListEntry>(name: &str) -> String {
    let mut bytes = name.as_bytes().to_vec();
    bytes.extend(checksum::<T>(name));
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the name in a cursor, if it was issued for this list.
fn decode_cursor<T: ListEntry>(cursor: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (name, sum) = bytes.split_last_chunk()?;
    let name = std::str::from_utf8(name).ok()?;
    (*sum == checksum::<T>(name)).then(|| name.to_owned())
}

/// Returns the FNV-1a hash that detects cursors of other lists. It need not be secret: a forged cursor reveals no more
/// than the list does.
fn checksum<T: ListEntry>(name: &str) -> [u8; 4] {
    let bytes = T::MEMBER.bytes().chain([0]).chain(name.bytes());
    let sum = bytes.fold(0x811c_9dc5_u32, |sum, byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    sum.to_be_bytes()
}

/// The hints of a list without [`CacheHints`]: it must not be reused or shared.
const NO_CACHE: CacheHints = CacheHints {
    ttl_ms: 0,
    scope: CacheScope::PRIVATE,
};

#[cfg(test)]
mod tests {
    use bowline_core::era::{Seal, seal};

    use super::super::registry::Registry;
    use super::super::visibility::Visibility;
    use super::*;

    #[derive(Clone, Default)]
    struct Letter(Visibility);

    impl ListEntry for Letter {
        type Definition = String;
        const MEMBER: &'static str = "letters";

        fn list_definition(&self, name: &str, _: &Dialect) -> String {
            name.to_owned()
        }
    }

    impl Visible for Letter {
        fn visibility(&self) -> &Visibility {
            &self.0
        }
    }

    #[derive(Clone)]
    struct Other(Visibility);

    impl ListEntry for Other {
        type Definition = String;
        const MEMBER: &'static str = "others";

        fn list_definition(&self, name: &str, _: &Dialect) -> String {
            name.to_owned()
        }
    }

    impl Visible for Other {
        fn visibility(&self) -> &Visibility {
            &self.0
        }
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LetterPage {
        letters: Vec<String>,
        next_cursor: Option<String>,
    }

    fn letters(names: &str) -> Registry<Letter> {
        let registry = Registry::default();
        for name in names.chars() {
            registry.change(|entries| entries.add(name.into(), Letter::default()));
        }
        registry
    }

    fn request_page(
        registry: &Registry<Letter>,
        cursor: Option<&str>,
    ) -> Result<LetterPage, RpcError> {
        let params = Json::from(serde_json::json!({ "cursor": cursor }));
        let page = list_in_pairs(registry, &params)?;
        Ok(page.decode().unwrap())
    }

    #[test]
    fn every_entry_is_on_exactly_one_page_in_the_order_of_names() {
        let registry = letters("ecadb");

        let first = request_page(&registry, None).unwrap();
        let second = request_page(&registry, first.next_cursor.as_deref()).unwrap();
        let third = request_page(&registry, second.next_cursor.as_deref()).unwrap();

        assert_eq!(first.letters, ["a", "b"]);
        assert_eq!(second.letters, ["c", "d"]);
        assert_eq!(third.letters, ["e"]);
        assert_eq!(third.next_cursor, None);
    }

    #[test]
    fn a_list_that_fills_its_last_page_ends_there() {
        let registry = letters("ab");

        assert_eq!(request_page(&registry, None).unwrap().next_cursor, None);
    }

    #[test]
    fn a_cursor_stays_valid_when_entries_are_added_and_removed() {
        let registry = letters("abcd");
        let first = request_page(&registry, None).unwrap();
        registry.change(|entries| entries.remove("b"));
        registry.change(|entries| entries.add("bb".into(), Letter::default()));

        let second = request_page(&registry, first.next_cursor.as_deref()).unwrap();

        assert_eq!(second.letters, ["bb", "c"]);
    }

    #[test]
    fn a_cursor_that_was_not_issued_for_this_list_is_invalid() {
        let registry = letters("abc");
        let others = encode_cursor::<Other>("a");

        for cursor in ["", "a", "b", "AAAA", "AAAAAAAA", "&", &others] {
            let error = request_page(&registry, Some(cursor)).unwrap_err();

            assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{cursor}");
        }
    }

    #[test]
    fn a_list_is_encoded_once_until_it_changes() {
        let registry = letters("abc");
        let params = Json::empty_object();
        let encode = || list_in_pairs(&registry, &params).unwrap();

        let (first, again) = (encode(), encode());
        registry.change(|entries| entries.remove("a"));
        let changed = encode();

        assert_eq!(first.as_bytes().as_ptr(), again.as_bytes().as_ptr());
        assert_ne!(first, changed);
    }

    #[test]
    fn a_page_is_sealed_without_a_copy() {
        let page = list_in_pairs(&letters("abc"), &Json::empty_object()).unwrap();
        let other = Json::encode(&Implementation::new("other", "2")).unwrap();
        let form = Seal::new(Dialect::LATEST, "tools/list");

        let sealed = seal(&form, &other, Ok(page.clone())).unwrap();

        assert_eq!(sealed, page);
        assert_eq!(sealed.as_bytes().as_ptr(), page.as_bytes().as_ptr());
    }

    #[test]
    fn pages_of_earlier_settings_are_not_cached_for_later_ones() {
        let registry = letters("abc");
        registry.discard_pages(1);
        let params = Json::empty_object();
        let list_with = |size, revision| {
            let page = list_in(&registry, &params, size, revision).unwrap();
            page.decode::<LetterPage>().unwrap().letters.len()
        };

        assert_eq!(list_with(2, 0), 2);
        assert_eq!(list_with(1, 1), 1);
        assert_eq!(list_with(2, 0), 2);
    }

    fn list_in_pairs(registry: &Registry<Letter>, params: &Json) -> Outcome {
        list_in(registry, params, 2, 0)
    }

    fn list_in(registry: &Registry<Letter>, params: &Json, size: usize, revision: u64) -> Outcome {
        let identity = Implementation::new("alphabet", "1");
        let paging = Paging {
            size: Some(size),
            cache: None,
            is_private: false,
            identity: &identity,
            revision,
            dialect: Dialect::LATEST,
        };
        list_public(&registry.snapshot(), params, &paging)
    }
}
