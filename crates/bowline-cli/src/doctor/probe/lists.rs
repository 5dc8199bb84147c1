//! Reads lists page by page.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Link, Patience, Reply};

/// A list, as far as it could be read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListFacts {
    pub(crate) items: Vec<Value>,
    pub(crate) pages: usize,
    /// The size of the items.
    pub(crate) bytes: usize,
    pub(crate) end: ListEnd,
}

/// Why the list ends where it ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ListEnd {
    Complete,
    /// A cursor came a second time.
    Loop(String),
    /// There are more pages or items than the doctor reads.
    TooMany,
    /// The server answered with an error, or not at all.
    Failed(String),
    /// The method does not exist.
    NoSuchMethod,
}

/// Reads all pages of a list: `method` is its method, `member` the member of the result with the items.
pub(crate) async fn read_list(
    link: &mut Link<'_>,
    method: &str,
    member: &str,
    patience: Patience,
) -> ListFacts {
    let mut facts = ListFacts {
        items: Vec::new(),
        pages: 0,
        bytes: 0,
        end: ListEnd::Complete,
    };
    let mut cursors = BTreeSet::new();
    let mut params = json!({});
    loop {
        let reply = match link.request(method, params, patience).await {
            Ok(reply) => reply,
            Err(why) => {
                facts.end = ListEnd::Failed(why);
                return facts;
            }
        };
        facts.pages += 1;
        match next_page(&mut facts, &mut cursors, &reply, member) {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return facts,
        }
    }
}

/// Adds a page, and returns the cursor of the next one.
fn next_page(
    facts: &mut ListFacts,
    cursors: &mut BTreeSet<String>,
    reply: &Reply,
    member: &str,
) -> Option<String> {
    let result = match reply {
        Reply::Result(result) => result,
        Reply::Error { code, .. } if *code == METHOD_NOT_FOUND && facts.pages == 1 => {
            facts.end = ListEnd::NoSuchMethod;
            return None;
        }
        Reply::Error { .. } => {
            facts.end = ListEnd::Failed(reply.describe());
            return None;
        }
    };
    let Some(items) = result[member].as_array() else {
        facts.end = ListEnd::Failed(format!("a result without `{member}`"));
        return None;
    };
    facts.bytes += items
        .iter()
        .map(|item| item.to_string().len())
        .sum::<usize>();
    facts.items.extend(items.iter().cloned());
    let cursor = result["nextCursor"].as_str()?.to_owned();
    let is_long = facts.pages >= MAX_PAGES || facts.items.len() >= MAX_ITEMS;
    if is_long || facts.bytes >= MAX_BYTES {
        facts.end = ListEnd::TooMany;
        return None;
    }
    if !cursors.insert(cursor.clone()) {
        facts.end = ListEnd::Loop(cursor);
        return None;
    }
    Some(cursor)
}

const METHOD_NOT_FOUND: i64 = -32601;
const MAX_PAGES: usize = 200;
const MAX_ITEMS: usize = 10_000;
const MAX_BYTES: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pages: &[Value]) -> ListFacts {
        let mut facts = ListFacts {
            items: Vec::new(),
            pages: 0,
            bytes: 0,
            end: ListEnd::Complete,
        };
        let mut cursors = BTreeSet::new();
        for page in pages.iter().cycle() {
            facts.pages += 1;
            let reply = Reply::Result(page.clone());
            if next_page(&mut facts, &mut cursors, &reply, "tools").is_none() {
                break;
            }
        }
        facts
    }

    #[test]
    fn pages_are_read_to_the_last_one() {
        let facts = read(&[
            json!({"tools": [1, 2], "nextCursor": "b"}),
            json!({"tools": [3]}),
        ]);

        assert_eq!((facts.items.len(), facts.pages), (3, 2));
        assert_eq!(facts.end, ListEnd::Complete);
    }

    #[test]
    fn a_cursor_that_comes_again_is_a_loop() {
        let facts = read(&[json!({"tools": [1], "nextCursor": "a"})]);

        assert_eq!(facts.end, ListEnd::Loop("a".into()));
        assert_eq!(facts.pages, 2);
    }

    #[test]
    fn a_list_without_its_member_and_an_error_end_it() {
        assert!(matches!(read(&[json!({})]).end, ListEnd::Failed(_)));
    }
}
