//! Several servers behind one: names, lists, introductions and subscriptions, merged without I/O.

mod cursor;
pub use cursor::PageCursor;

mod introductions;
pub use introductions::merge_introductions;

mod last_lists;
pub use last_lists::LastLists;

mod listen;
pub use listen::{ListenEvent, ListenMerger};
#[cfg(test)]
mod listen_tests;

mod names;
pub(crate) use names::is_name_byte;
pub use names::{InvalidPrefix, NameRefused, Names};

mod page_merger;
pub(crate) use page_merger::MAX_PAGES;
pub use page_merger::{PageMerger, PagePosition};
#[cfg(test)]
mod page_tests;

mod raw_object;
pub(crate) use raw_object::RawObject;

mod route_request;
pub(crate) use route_request::unknown_item;
pub use route_request::{RoutedRequest, route_request};

mod uri_routes;
pub(crate) use uri_routes::MatchBudget;
pub use uri_routes::UriRoutes;
