//! Lists, page by page.
//!
//! A list is in the order of names, and a cursor says after which name to go on: it stays good while
//! things come and go. All pages of a list that everybody sees are encoded when the first is asked for in an era, and
//! kept until something changes.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_core::Outcome;
use bowline_core::era::Dialect;
use bowline_types::{CacheScope, ErrorCode, Implementation, Json, ResultType, RpcError, meta_key};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::registry::{Offered, Snapshot};
use super::router::encode;
use super::tool::invalid_params;
use crate::exchange::Context;

/// Something that can be listed.
pub(super) trait Listed: Clone {
    type Definition: Serialize;
    /// The member of the result that holds the list. It marks cursors too: one list's are no other's.
    const MEMBER: &'static str;

    /// Returns the definition for the era of `dialect`, with this name.
    fn listed_as(&self, name: &str, dialect: &Dialect) -> Self::Definition;

    /// Whether it is on everybody's list.
    fn is_for_everybody(&self) -> bool {
        true
    }

    /// Whether it is on the list of whoever is asking.
    fn is_visible_to(&self, cx: &Context) -> bool {
        let _ = cx;
        true
    }
}

/// How long an answer stays fresh, and who may share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cache {
    pub(super) ttl_ms: u64,
    pub(super) scope: CacheScope,
}

impl Cache {
    pub(super) fn new(ttl: Duration, scope: CacheScope) -> Self {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self { ttl_ms, scope }
    }
}

/// How a list is cut into pages, and what each of them says besides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paging<'a> {
    /// How many fit on a page; all of them, if nothing is said.
    pub(super) size: Option<usize>,
    pub(super) cache: Option<&'a Cache>,
    pub(super) identity: &'a Implementation,
    /// The caller's dialect.
    pub(super) dialect: &'static Dialect,
}

/// The encoded pages of a list for each era, made at the first request.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptPages {
    modern: OnceLock<Pages>,
    legacy: OnceLock<Pages>,
}

impl KeptPages {
    fn of(&self, dialect: &Dialect) -> &OnceLock<Pages> {
        match dialect.is_modern() {
            true => &self.modern,
            false => &self.legacy,
        }
    }
}

/// The pages of a list, encoded.
#[derive(Clone, Debug)]
struct Pages {
    first: Json,
    /// By the name after which they begin.
    later: BTreeMap<String, Json>,
}

/// The page that `params` ask for, with what whoever is asking may see.
pub(super) fn list_for<T: Listed>(
    cx: &Context,
    snapshot: &Snapshot<T>,
    params: &Json,
    paging: &Paging<'_>,
) -> Outcome {
    let mut entries = snapshot.entries().values();
    // Pages are kept only of a list that everybody sees.
    let pages = snapshot.pages.of(paging.dialect);
    if pages.get().is_some() || entries.all(|offered| offered.item.is_for_everybody()) {
        return list(snapshot, params, paging);
    }
    let after = asked_after::<T>(params)?;
    let private = paging.cache.map(|cache| Cache {
        ttl_ms: cache.ttl_ms,
        scope: CacheScope::PRIVATE,
    });
    let paging = Paging {
        cache: private.as_ref(),
        ..*paging
    };
    let rest = snapshot.after(after.as_deref());
    let visible = rest.filter(|(_, offered)| offered.item.is_visible_to(cx));
    Page::of(visible, &paging).encode()
}

/// The page that `params` ask for.
pub(super) fn list<T: Listed>(
    snapshot: &Snapshot<T>,
    params: &Json,
    paging: &Paging<'_>,
) -> Outcome {
    let after = asked_after::<T>(params)?;
    let kept = snapshot.pages.of(paging.dialect);
    let pages = match kept.get() {
        Some(pages) => pages,
        None => {
            let pages = Pages::encode(snapshot, paging)?;
            kept.get_or_init(|| pages)
        }
    };
    let Some(after) = after else {
        return Ok(pages.first.clone());
    };
    match pages.later.get(&after) {
        Some(page) => Ok(page.clone()),
        // The pages were cut differently when the cursor was made.
        None => Page::of(snapshot.after(Some(&after)), paging).encode(),
    }
}

/// The name after which the page begins that `params` ask for; `None` if that is the first.
fn asked_after<T: Listed>(params: &Json) -> Result<Option<String>, RpcError> {
    #[derive(Deserialize)]
    struct Asked {
        cursor: Option<String>,
    }

    let Asked { cursor } = params.decode().map_err(invalid_params)?;
    let Some(cursor) = cursor else {
        return Ok(None);
    };
    match after::<T>(&cursor) {
        Some(after) => Ok(Some(after)),
        None => Err(RpcError::new(
            ErrorCode::INVALID_PARAMS,
            "the cursor is not valid",
        )),
    }
}

impl Pages {
    fn encode<T: Listed>(snapshot: &Snapshot<T>, paging: &Paging<'_>) -> Result<Self, RpcError> {
        let page = Page::of(snapshot.after(None), paging);
        let mut pages = Self {
            first: page.encode()?,
            later: BTreeMap::new(),
        };
        let mut next = page.last.filter(|_| page.has_more);
        while let Some(after) = next {
            let page = Page::of(snapshot.after(Some(after)), paging);
            pages.later.insert(after.to_owned(), page.encode()?);
            next = page.last.filter(|_| page.has_more);
        }
        Ok(pages)
    }
}

/// One page, not encoded yet.
struct Page<'a, T: Listed> {
    items: Vec<T::Definition>,
    last: Option<&'a str>,
    has_more: bool,
    paging: &'a Paging<'a>,
}

impl<'a, T: Listed + 'a> Page<'a, T> {
    /// As much of `rest` as fits.
    fn of(
        mut rest: impl Iterator<Item = (&'a String, &'a Arc<Offered<T>>)>,
        paging: &'a Paging<'a>,
    ) -> Self {
        let mut page = Self {
            items: Vec::new(),
            last: None,
            has_more: false,
            paging,
        };
        for (name, offered) in rest.by_ref().take(paging.size.unwrap_or(usize::MAX)) {
            page.items
                .push(offered.item.listed_as(name, paging.dialect));
            page.last = Some(name);
        }
        page.has_more = rest.next().is_some();
        page
    }

    fn encode(&self) -> Outcome {
        encode(self)
    }
}

/// What every result must say comes first: whoever seals a page reads no further than that, and finds nothing
/// to add.
impl<T: Listed> Serialize for Page<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.paging.dialect.results_are_typed {
            let cache = self.paging.cache.unwrap_or(&STALE);
            let signature = BTreeMap::from([(meta_key::SERVER_INFO, self.paging.identity)]);
            map.serialize_entry("resultType", &ResultType::COMPLETE)?;
            map.serialize_entry("ttlMs", &cache.ttl_ms)?;
            map.serialize_entry("cacheScope", &cache.scope)?;
            map.serialize_entry("_meta", &signature)?;
        }
        map.serialize_entry(T::MEMBER, &self.items)?;
        if let Some(last) = self.last.filter(|_| self.has_more) {
            map.serialize_entry("nextCursor", &cursor::<T>(last))?;
        }
        map.end()
    }
}

/// The cursor to what comes after `name`.
fn cursor<T: Listed>(name: &str) -> String {
    let mut bytes = name.as_bytes().to_vec();
    bytes.extend(checksum::<T>(name));
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The name in a cursor, if we made it, and for this list.
fn after<T: Listed>(cursor: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (name, sum) = bytes.split_last_chunk()?;
    let name = std::str::from_utf8(name).ok()?;
    (*sum == checksum::<T>(name)).then(|| name.to_owned())
}

/// Tells our cursors from anything else (FNV-1a). It need not be a secret: a forged cursor reveals nothing
/// that the list does not.
fn checksum<T: Listed>(name: &str) -> [u8; 4] {
    let bytes = T::MEMBER.bytes().chain([0]).chain(name.bytes());
    let sum = bytes.fold(0x811c_9dc5_u32, |sum, byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    sum.to_be_bytes()
}

/// Of a list whose server says nothing about it: nobody can tell how long it is good, nor for whom.
const STALE: Cache = Cache {
    ttl_ms: 0,
    scope: CacheScope::PRIVATE,
};

#[cfg(test)]
mod tests {
    use bowline_core::era::{Seal, seal};

    use super::super::registry::Registry;
    use super::*;

    #[derive(Clone)]
    struct Letter;

    impl Listed for Letter {
        type Definition = String;
        const MEMBER: &'static str = "letters";

        fn listed_as(&self, name: &str, _: &Dialect) -> String {
            name.to_owned()
        }
    }

    #[derive(Clone)]
    struct Other;

    impl Listed for Other {
        type Definition = String;
        const MEMBER: &'static str = "others";

        fn listed_as(&self, name: &str, _: &Dialect) -> String {
            name.to_owned()
        }
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        letters: Vec<String>,
        next_cursor: Option<String>,
    }

    fn letters(names: &str) -> Registry<Letter> {
        let mut registry = Registry::default();
        for name in names.chars() {
            registry.building().add(name.into(), Letter);
        }
        registry
    }

    fn ask(registry: &Registry<Letter>, cursor: Option<&str>) -> Result<Answer, RpcError> {
        let params = Json::from(serde_json::json!({ "cursor": cursor }));
        let page = list_in_pairs(registry, &params)?;
        Ok(page.decode().unwrap())
    }

    #[test]
    fn every_entry_is_on_exactly_one_page_in_the_order_of_names() {
        let registry = letters("ecadb");

        let first = ask(&registry, None).unwrap();
        let second = ask(&registry, first.next_cursor.as_deref()).unwrap();
        let third = ask(&registry, second.next_cursor.as_deref()).unwrap();

        assert_eq!(first.letters, ["a", "b"]);
        assert_eq!(second.letters, ["c", "d"]);
        assert_eq!(third.letters, ["e"]);
        assert_eq!(third.next_cursor, None);
    }

    #[test]
    fn a_list_that_fills_its_last_page_ends_there() {
        let registry = letters("ab");

        assert_eq!(ask(&registry, None).unwrap().next_cursor, None);
    }

    #[test]
    fn a_cursor_stays_good_while_entries_come_and_go() {
        let registry = letters("abcd");
        let first = ask(&registry, None).unwrap();
        registry.change(|entries| entries.remove("b"));
        registry.change(|entries| entries.add("bb".into(), Letter));

        let second = ask(&registry, first.next_cursor.as_deref()).unwrap();

        assert_eq!(second.letters, ["bb", "c"]);
    }

    #[test]
    fn a_cursor_that_we_did_not_make_for_this_list_is_invalid() {
        let registry = letters("abc");
        let others = cursor::<Other>("a");

        for cursor in ["", "a", "b", "AAAA", "AAAAAAAA", "&", &others] {
            let error = ask(&registry, Some(cursor)).unwrap_err();

            assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{cursor}");
        }
    }

    #[test]
    fn a_list_is_encoded_once_until_something_changes() {
        let registry = letters("abc");
        let params = Json::empty_object();
        let ask = || list_in_pairs(&registry, &params).unwrap();

        let (first, again) = (ask(), ask());
        registry.change(|entries| entries.remove("a"));
        let changed = ask();

        assert_eq!(first.as_bytes().as_ptr(), again.as_bytes().as_ptr());
        assert_ne!(first, changed);
    }

    #[test]
    fn a_page_is_sealed_as_it_is() {
        let page = list_in_pairs(&letters("abc"), &Json::empty_object()).unwrap();
        let other = Json::encode(&Implementation::new("other", "2")).unwrap();
        let form = Seal::new(Dialect::LATEST, "tools/list");

        let sealed = seal(&form, &other, Ok(page.clone())).unwrap();

        assert_eq!(sealed, page);
        assert_eq!(sealed.as_bytes().as_ptr(), page.as_bytes().as_ptr());
    }

    fn list_in_pairs(registry: &Registry<Letter>, params: &Json) -> Outcome {
        let identity = Implementation::new("alphabet", "1");
        let paging = Paging {
            size: Some(2),
            cache: None,
            identity: &identity,
            dialect: Dialect::LATEST,
        };
        list(&registry.now(), params, &paging)
    }
}
