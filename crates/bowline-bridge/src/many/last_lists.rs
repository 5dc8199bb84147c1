//! [`LastLists`]: what servers offered last, for when they cannot be reached.

use std::collections::BTreeMap;

use bowline::Json;
use serde_json::value::RawValue;

use super::page_merger::member_of;
use super::raw_object::RawObject;
use crate::config::ItemKind;

/// The pages that servers returned last, which are shown while they cannot be reached (`"stale": "show"`).
///
/// A list belongs to an owner, such as a principal: what one sees is never shown to another. Lists of at most 4 MiB are
/// kept, at most 1024 of them and 64 MiB in all; those that were not recorded for the longest time are removed first.
///
/// # Examples
///
/// ```
/// use bowline::Json;
/// use bowline_bridge::config::ItemKind::Tool;
/// use bowline_bridge::many::LastLists;
///
/// let mut lists = LastLists::default();
/// let first = Json::parse(r#"{"tools": [{"name": "a"}], "nextCursor": "2"}"#)?;
/// let second = Json::parse(r#"{"tools": [{"name": "b"}]}"#)?;
/// lists.record("files", Tool, "ada", None, &first);
/// lists.record("files", Tool, "ada", Some("2"), &second);
/// let all = lists.get("files", Tool, "ada", None).unwrap();
/// assert_eq!(all.as_str(), r#"{"tools":[{"name": "a"},{"name": "b"}]}"#);
/// assert_eq!(lists.get("files", Tool, "eve", None), None);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct LastLists {
    lists: BTreeMap<ListKey, ListPages>,
    /// The memory of all lists.
    bytes: usize,
    /// Counts records, as a clock.
    now: u64,
}

type ListKey = (String, ItemKind, String);

#[derive(Debug, Default)]
struct ListPages {
    pages: Vec<ListPage>,
    bytes: usize,
    recorded: u64,
}

#[derive(Debug)]
struct ListPage {
    cursor: Option<String>,
    /// The items, separated by commas.
    items: Vec<u8>,
    next: Option<String>,
}

impl LastLists {
    /// Records a page that a server returned for a cursor. The first page replaces those recorded before.
    pub fn record(
        &mut self,
        server: &str,
        kind: ItemKind,
        owner: &str,
        cursor: Option<&str>,
        page: &Json,
    ) {
        let Some(page) = ListPage::read(kind, cursor, page) else {
            return;
        };
        self.now += 1;
        let key = (server.to_owned(), kind, owner.to_owned());
        let list = self.lists.entry(key.clone()).or_default();
        list.recorded = self.now;
        let at = list
            .pages
            .iter()
            .position(|it| it.cursor.as_deref() == cursor);
        let follows = list
            .pages
            .last()
            .is_some_and(|last| last.next.as_deref() == cursor);
        match at {
            _ if cursor.is_none() => list.pages.clear(),
            Some(at) => list.pages.truncate(at),
            None if follows => {}
            // The pages before it are unknown, so it cannot be placed.
            None => {
                if list.pages.is_empty() {
                    self.lists.remove(&key);
                }
                return;
            }
        }
        list.pages.push(page);
        let pages: usize = list.pages.iter().map(ListPage::bytes).sum();
        let bytes = pages + key_bytes(&key);
        self.bytes = self.bytes - std::mem::replace(&mut list.bytes, bytes) + bytes;
        if bytes > MAX_LIST_BYTES {
            self.remove(&key);
        }
        while self.lists.len() > MAX_LISTS || self.bytes > MAX_BYTES {
            let oldest = self.lists.iter().min_by_key(|(_, list)| list.recorded);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &ListKey) {
        let removed = self.lists.remove(key);
        self.bytes -= removed.map_or(0, |list| list.bytes);
    }

    /// Returns everything from a cursor on as one page.
    #[must_use]
    pub fn get(
        &self,
        server: &str,
        kind: ItemKind,
        owner: &str,
        cursor: Option<&str>,
    ) -> Option<Json> {
        let list = self
            .lists
            .get(&(server.to_owned(), kind, owner.to_owned()))?;
        let at = list
            .pages
            .iter()
            .position(|it| it.cursor.as_deref() == cursor)?;
        let mut text = format!("{{\"{}\":[", member_of(kind)).into_bytes();
        let start = text.len();
        for page in list.pages[at..]
            .iter()
            .filter(|page| !page.items.is_empty())
        {
            if text.len() > start {
                text.push(b',');
            }
            text.extend_from_slice(&page.items);
        }
        text.extend_from_slice(b"]}");
        Some(Json::from_valid(text.into()))
    }

    /// Removes all lists of a server, such as one that is no longer configured.
    pub fn forget_server(&mut self, server: &str) {
        self.lists.retain(|(other, ..), _| other != server);
        self.bytes = self.lists.values().map(|list| list.bytes).sum();
    }
}

impl ListPage {
    fn read(kind: ItemKind, cursor: Option<&str>, page: &Json) -> Option<Self> {
        let page = RawObject::parse(page.as_str()).ok()?;
        let items = page.get(member_of(kind))?;
        let items: Vec<&RawValue> = serde_json::from_str(items.get()).ok()?;
        let items: Vec<_> = items.into_iter().map(RawValue::get).collect();
        Some(Self {
            cursor: cursor.map(str::to_owned),
            items: items.join(",").into_bytes(),
            next: page.text("nextCursor").map(std::borrow::Cow::into_owned),
        })
    }

    /// Returns the memory of the page. One without items has some too.
    fn bytes(&self) -> usize {
        let cursors = [&self.cursor, &self.next].into_iter().flatten();
        size_of::<Self>() + self.items.len() + cursors.map(String::len).sum::<usize>()
    }
}

fn key_bytes((server, _, owner): &ListKey) -> usize {
    server.len() + owner.len() + size_of::<(ListKey, ListPages)>()
}

const MAX_LISTS: usize = 1024;
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
const MAX_BYTES: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ItemKind::{Prompt, Tool};

    fn page(names: &[&str], next: Option<&str>) -> Json {
        let tools: Vec<_> = names
            .iter()
            .map(|name| serde_json::json!({"name": name}))
            .collect();
        let mut page = serde_json::json!({"tools": tools, "ttlMs": 5});
        if let Some(next) = next {
            page["nextCursor"] = next.into();
        }
        page.into()
    }

    fn names(list: Option<Json>) -> Vec<String> {
        let list: serde_json::Value = list.unwrap().decode().unwrap();
        let tools = list["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn pages_are_joined_from_a_cursor_on() {
        let mut lists = LastLists::default();
        lists.record("s", Tool, "o", None, &page(&["a"], Some("2")));
        lists.record("s", Tool, "o", Some("2"), &page(&[], Some("3")));
        lists.record("s", Tool, "o", Some("3"), &page(&["b", "c"], None));

        assert_eq!(names(lists.get("s", Tool, "o", None)), ["a", "b", "c"]);
        assert_eq!(names(lists.get("s", Tool, "o", Some("2"))), ["b", "c"]);
        assert_eq!(lists.get("s", Tool, "o", Some("4")), None);
        assert_eq!(lists.get("s", Prompt, "o", None), None);
        lists.forget_server("s");
        assert_eq!(lists.get("s", Tool, "o", None), None);
    }

    #[test]
    fn a_new_first_page_replaces_the_list() {
        let mut lists = LastLists::default();
        lists.record("s", Tool, "o", None, &page(&["a"], Some("2")));
        lists.record("s", Tool, "o", Some("2"), &page(&["b"], None));

        lists.record("s", Tool, "o", None, &page(&["c"], Some("2")));
        assert_eq!(names(lists.get("s", Tool, "o", None)), ["c"]);
        lists.record("s", Tool, "o", Some("9"), &page(&["x"], None));
        lists.record("s", Tool, "o", Some("2"), &page(&["d"], None));
        lists.record("s", Tool, "o", Some("2"), &page(&["e"], None));

        assert_eq!(names(lists.get("s", Tool, "o", None)), ["c", "e"]);
    }

    #[test]
    fn lists_are_bounded() {
        let mut lists = LastLists::default();
        for owner in 0..=MAX_LISTS {
            lists.record("s", Tool, &owner.to_string(), None, &page(&["a"], None));
        }

        assert_eq!(lists.lists.len(), MAX_LISTS);
        assert_eq!(lists.get("s", Tool, "0", None), None);
    }

    #[test]
    fn a_page_that_cannot_be_placed_costs_nothing() {
        let mut lists = LastLists::default();

        lists.record("s", Tool, "o", Some("9"), &page(&["x"], None));

        assert!(lists.lists.is_empty());
    }

    #[test]
    fn a_list_that_is_too_large_is_not_kept() {
        let mut lists = LastLists::default();
        let large = "x".repeat(MAX_LIST_BYTES);

        lists.record("s", Tool, "o", None, &page(&[&large], None));

        assert_eq!(lists.get("s", Tool, "o", None), None);
        assert_eq!(lists.bytes, 0);
    }

    #[test]
    fn pages_without_items_count_too() {
        let mut lists = LastLists::default();
        let cursor = |number: usize| format!("{number:0>1000}");
        lists.record("s", Tool, "o", None, &page(&[], Some(&cursor(1))));

        for number in 1.. {
            let empty = page(&[], Some(&cursor(number + 1)));
            lists.record("s", Tool, "o", Some(&cursor(number)), &empty);
            if lists.lists.is_empty() {
                break;
            }
            assert!(number < MAX_LIST_BYTES / 1000, "kept {} bytes", lists.bytes);
        }

        assert_eq!(lists.bytes, 0);
    }

    #[test]
    fn all_lists_together_are_bounded() {
        let mut lists = LastLists::default();
        let large = "x".repeat(MAX_LIST_BYTES / 2);
        for owner in 0..40 {
            lists.record("s", Tool, &owner.to_string(), None, &page(&[&large], None));
            assert!(lists.bytes <= MAX_BYTES);
        }

        assert_eq!(lists.get("s", Tool, "0", None), None);
        assert!(lists.get("s", Tool, "39", None).is_some());
        assert_eq!(lists.lists.len(), 31);
        lists.forget_server("s");
        assert_eq!(lists.bytes, 0);
    }
}
