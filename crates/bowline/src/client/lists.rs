//! Lists that come in pages: all of them, one of them, or item by item.
//!
//! A cursor means something to the server only. The list ends with the page that names no next one, and a
//! cursor that comes again would make it endless, so that is where patience ends.

use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, IntoFuture, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{self, Poll};

use bowline_types::{
    Cursor, ErrorCode, ListPromptsRequest, ListPromptsResult, ListResourceTemplatesRequest,
    ListResourceTemplatesResult, ListResourcesRequest, ListResourcesResult, ListToolsRequest,
    ListToolsResult, Method, PaginatedRequestParams, Prompt, Resource, ResourceTemplate, Tool,
};
use futures_core::Stream;

use super::draft::Terms;
use super::{Call, Client, Draft, Typed, encode_object};
use crate::exchange::BoxFuture;
use crate::{Error, Result};

/// A method that gives a list in pages.
pub trait Listed: Method<Params = PaginatedRequestParams> + 'static {
    /// What the list is of.
    type Item: Send + Unpin + 'static;

    /// Takes a page apart: its items, and where the next page starts.
    fn into_page(result: Self::Result) -> (Vec<Self::Item>, Option<Cursor>);
}

/// Listing; gives everything on the list.
#[derive(Debug)]
pub struct List<M> {
    most_pages: usize,
    most_items: usize,
    max_bytes: usize,
    method: PhantomData<fn() -> M>,
}

impl Client {
    /// Lists the server's tools, all pages of them.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// for tool in client.list_tools().await? {
    ///     println!("{}", tool.name);
    /// }
    ///
    /// let first = client.list_tools().first_page().await?;
    /// if let Some(next) = first.next_cursor {
    ///     let second = client.list_tools().cursor(next).await?;
    /// }
    ///
    /// let mut tools = client.list_tools().stream();
    /// while let Some(tool) = tools.next().await {
    ///     println!("{}", tool?.name); // dropping `tools` cancels the page that is on its way
    /// }
    /// # Ok(()) }
    /// ```
    pub fn list_tools(&self) -> Draft<List<ListToolsRequest>> {
        self.list()
    }

    /// Lists the server's resources, all pages of them.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// for resource in client.list_resources().await? {
    ///     println!("{} is {}", resource.uri, resource.name);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn list_resources(&self) -> Draft<List<ListResourcesRequest>> {
        self.list()
    }

    /// Lists the server's resource templates, all pages of them.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// for template in client.list_resource_templates().await? {
    ///     println!("{}", template.uri_template);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn list_resource_templates(&self) -> Draft<List<ListResourceTemplatesRequest>> {
        self.list()
    }

    /// Lists the server's prompts, all pages of them.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// for prompt in client.list_prompts().await? {
    ///     println!("{}", prompt.name);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn list_prompts(&self) -> Draft<List<ListPromptsRequest>> {
        self.list()
    }

    /// Lists whatever a method lists.
    pub fn list<M: Listed>(&self) -> Draft<List<M>> {
        let list = List {
            most_pages: MOST_PAGES,
            most_items: MOST_ITEMS,
            max_bytes: MAX_BYTES,
            method: PhantomData,
        };
        let params = encode_object(&PaginatedRequestParams::default());
        Draft::new(self, M::NAME, params, list)
    }
}

impl<M: Listed> Draft<List<M>> {
    /// Asks for the first page only.
    pub fn first_page(self) -> Draft<Typed<M>> {
        self.only(None)
    }

    /// Asks for the page that an earlier one named, and no other.
    pub fn cursor(self, cursor: impl Into<Cursor>) -> Draft<Typed<M>> {
        self.only(Some(cursor.into()))
    }

    fn only(mut self, cursor: Option<Cursor>) -> Draft<Typed<M>> {
        self.terms.params = params_for(cursor);
        Draft {
            terms: self.terms,
            act: Typed::new(),
        }
    }

    /// Takes in at most this many pages; a longer list is the server's mistake. 1,000 by default.
    pub fn most_pages(mut self, pages: usize) -> Self {
        self.act.most_pages = pages;
        self
    }

    /// Takes in at most this many items; a longer list is the server's mistake. 100,000 by default.
    pub fn most_items(mut self, items: usize) -> Self {
        self.act.most_items = items;
        self
    }

    /// Sets how many bytes all pages may have together; a list beyond that fails. 64 MiB by default.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.act.max_bytes = bytes;
        self
    }

    /// Gives the items one by one; a page is asked for when it is needed.
    pub fn stream(self) -> Items<M> {
        Items::new(self)
    }
}

impl<M: Listed> IntoFuture for Draft<List<M>> {
    type Output = Result<Vec<M::Item>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.stream().collect())
    }
}

/// The items of a list, one by one.
///
/// After an error there is no next item.
///
/// # Cancel safety
///
/// Dropping it cancels the request for the page that is on its way.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// use bowline::types::Tool;
///
/// let mut tools = client.list_tools().stream();
/// let first: Option<Tool> = tools.next().await.transpose()?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is asked for until it is polled"]
pub struct Items<M: Listed> {
    list: List<M>,
    state: State,
    ready: VecDeque<M::Item>,
    cursors: BTreeSet<Cursor>,
    pages: usize,
    items: usize,
    /// How many bytes the pages had.
    bytes: usize,
}

enum State {
    /// The next page is asked for on these terms.
    Ready(Terms),
    /// A page is on its way; the next is asked for on the terms.
    Asking(Box<Call>, Terms),
    Done,
}

impl<M: Listed> Items<M> {
    fn new(draft: Draft<List<M>>) -> Self {
        Self {
            list: draft.act,
            state: State::Ready(draft.terms),
            ready: VecDeque::new(),
            cursors: BTreeSet::new(),
            pages: 0,
            items: 0,
            bytes: 0,
        }
    }

    /// The next item; `None` at the end of the list.
    ///
    /// # Cancel safety
    ///
    /// Safe: an item is taken only when it is returned.
    pub async fn next(&mut self) -> Option<Result<M::Item>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    async fn collect(mut self) -> Result<Vec<M::Item>> {
        let mut items = Vec::new();
        let mut spare = match &self.state {
            State::Ready(terms) => Some(terms.for_another_page(params_for(None))),
            State::Asking(..) | State::Done => None,
        };
        while let Some(item) = self.next().await {
            match item {
                Ok(item) => items.push(item),
                Err(Error::Peer(error))
                    if error.code == ErrorCode::INVALID_PARAMS && self.pages > 0 =>
                {
                    // A cursor that was good once and is no longer: the pages so far are of an older
                    // list. One new start is enough to tell that from a server that is confused.
                    let Some(mut terms) = spare.take() else {
                        return Err(error.into());
                    };
                    terms.freshness = terms.freshness.anew();
                    items.clear();
                    let act = self.list;
                    self = Self::new(Draft { terms, act });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(items)
    }

    /// Counts the bytes of a page before it is decoded, which takes more.
    fn charge(&mut self, bytes: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.list.max_bytes {
            let max = self.list.max_bytes;
            return Err(Error::protocol(format!(
                "the list exceeds the limit of {max} bytes"
            )));
        }
        Ok(())
    }

    /// Takes in a page and says what comes next.
    fn turn(&mut self, result: M::Result, mut terms: Terms) -> Result<State> {
        let (items, next) = M::into_page(result);
        self.pages += 1;
        self.items += items.len();
        self.ready.extend(items);
        if self.items > self.list.most_items {
            let most = self.list.most_items;
            return Err(Error::protocol(format!("a list of more than {most} items")));
        }
        let Some(next) = next else {
            return Ok(State::Done);
        };
        if self.pages >= self.list.most_pages {
            let most = self.list.most_pages;
            return Err(Error::protocol(format!("a list of more than {most} pages")));
        }
        if !self.cursors.insert(next.clone()) {
            return Err(Error::protocol("a list that comes back to the same cursor"));
        }
        terms.params = params_for(Some(next));
        Ok(State::Ready(terms))
    }
}

impl<M: Listed> Stream for Items<M> {
    type Item = Result<M::Item>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(item) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(item)));
            }
            match std::mem::replace(&mut this.state, State::Done) {
                State::Done => return Poll::Ready(None),
                State::Ready(terms) => {
                    let next = terms.for_another_page(params_for(None));
                    this.state = State::Asking(Box::new(terms.start()), next);
                }
                State::Asking(mut call, mut terms) => {
                    let Poll::Ready(reply) = Pin::new(&mut *call).poll(cx) else {
                        this.state = State::Asking(call, terms);
                        return Poll::Pending;
                    };
                    terms.on_progress = call.take_on_progress();
                    let result = reply.and_then(|reply| {
                        this.charge(reply.json().as_bytes().len())?;
                        reply.decode()
                    });
                    match result.and_then(|result| this.turn(result, terms)) {
                        Ok(state) => this.state = state,
                        Err(error) => {
                            this.ready.clear();
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                }
            }
        }
    }
}

impl<M: Listed> std::fmt::Debug for Items<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Items")
            .field("method", &M::NAME)
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}

impl Listed for ListToolsRequest {
    type Item = Tool;

    fn into_page(result: ListToolsResult) -> (Vec<Tool>, Option<Cursor>) {
        (result.tools, result.next_cursor)
    }
}

impl Listed for ListResourcesRequest {
    type Item = Resource;

    fn into_page(result: ListResourcesResult) -> (Vec<Resource>, Option<Cursor>) {
        (result.resources, result.next_cursor)
    }
}

impl Listed for ListResourceTemplatesRequest {
    type Item = ResourceTemplate;

    fn into_page(result: ListResourceTemplatesResult) -> (Vec<ResourceTemplate>, Option<Cursor>) {
        (result.resource_templates, result.next_cursor)
    }
}

impl Listed for ListPromptsRequest {
    type Item = Prompt;

    fn into_page(result: ListPromptsResult) -> (Vec<Prompt>, Option<Cursor>) {
        (result.prompts, result.next_cursor)
    }
}

fn params_for(cursor: Option<Cursor>) -> Result<bowline_types::Json> {
    let mut params = PaginatedRequestParams::default();
    params.cursor = cursor;
    encode_object(&params)
}

const MOST_PAGES: usize = 1_000;
const MOST_ITEMS: usize = 100_000;
const MAX_BYTES: usize = 64 * 1024 * 1024;
