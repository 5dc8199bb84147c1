//! Paginated lists (`tools/list` and others): all items, one page, or a stream of items.
//!
//! Cursors are opaque. The list ends with the page without `nextCursor`; a repeated cursor is an error, because
//! following it would never end. A list that the server does not offer is empty, and is not requested.

use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_types::{
    Cursor, ErrorCode, ListPromptsRequest, ListPromptsResult, ListResourceTemplatesRequest,
    ListResourceTemplatesResult, ListResourcesRequest, ListResourcesResult, ListToolsRequest,
    ListToolsResult, Method, PaginatedRequestParams, Prompt, Resource, ResourceTemplate, Tool,
};
use futures_core::Stream;

use super::request_builder::sealed::Sealed;
use super::request_builder::{RequestKind, RequestOptions};
use super::{Call, Client, RequestBuilder, Typed, encode_object};
use crate::exchange::BoxFuture;
use crate::{Error, Result};

/// A method with a paginated result.
pub trait PaginatedMethod: Method<Params = PaginatedRequestParams> + 'static {
    /// The type of the items.
    type Item: Send + Unpin + 'static;

    /// Splits a page into its items and `nextCursor`.
    fn into_page(result: Self::Result) -> (Vec<Self::Item>, Option<Cursor>);
}

/// The kind of a list request, with its limits. Awaiting its [`RequestBuilder`] returns the items of all pages.
#[derive(Debug)]
pub struct List<M> {
    max_pages: usize,
    max_items: usize,
    max_bytes: usize,
    method: PhantomData<fn() -> M>,
}

impl Client {
    /// Lists the server's tools, from all pages (`tools/list`). Awaiting it starts over once if a cursor expires;
    /// [`stream`](RequestBuilder::stream) does not.
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
    ///     println!("{}", tool?.name); // dropping `tools` cancels the request in flight
    /// }
    /// # Ok(()) }
    /// ```
    pub fn list_tools(&self) -> RequestBuilder<List<ListToolsRequest>> {
        self.list()
    }

    /// Lists the server's resources, from all pages (`resources/list`). Awaiting it starts over once if a cursor
    /// expires; [`stream`](RequestBuilder::stream) does not.
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
    pub fn list_resources(&self) -> RequestBuilder<List<ListResourcesRequest>> {
        self.list()
    }

    /// Lists the server's resource templates, from all pages (`resources/templates/list`). Awaiting it starts over once
    /// if a cursor expires; [`stream`](RequestBuilder::stream) does not.
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
    pub fn list_resource_templates(&self) -> RequestBuilder<List<ListResourceTemplatesRequest>> {
        self.list()
    }

    /// Lists the server's prompts, from all pages (`prompts/list`). Awaiting it starts over once if a cursor expires;
    /// [`stream`](RequestBuilder::stream) does not.
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
    pub fn list_prompts(&self) -> RequestBuilder<List<ListPromptsRequest>> {
        self.list()
    }

    /// Lists the items of method `M`, from all pages. Awaiting it starts over once if a cursor expires;
    /// [`stream`](RequestBuilder::stream) does not.
    pub fn list<M: PaginatedMethod>(&self) -> RequestBuilder<List<M>> {
        let list = List {
            max_pages: MAX_PAGES,
            max_items: MAX_ITEMS,
            max_bytes: MAX_BYTES,
            method: PhantomData,
        };
        let params = encode_object(&PaginatedRequestParams::default());
        RequestBuilder::new(self, M::NAME, params, list)
    }
}

impl<M: PaginatedMethod> RequestBuilder<List<M>> {
    /// Requests the first page only.
    pub fn first_page(self) -> RequestBuilder<Typed<M>> {
        self.single_page(None)
    }

    /// Requests the page at `cursor` only.
    pub fn cursor(self, cursor: impl Into<Cursor>) -> RequestBuilder<Typed<M>> {
        self.single_page(Some(cursor.into()))
    }

    fn single_page(self, cursor: Option<Cursor>) -> RequestBuilder<Typed<M>> {
        let (mut options, _) = self.into_parts();
        options.params = params_for(cursor);
        RequestBuilder::from_parts(options, Typed::new())
    }

    /// Sets the maximum number of pages; a longer list fails with [`Error::Protocol`]. 1,000 by default.
    pub fn max_pages(mut self, pages: usize) -> Self {
        self.parts().1.max_pages = pages;
        self
    }

    /// Sets the maximum number of items; a longer list fails with [`Error::Protocol`]. 100,000 by default.
    pub fn max_items(mut self, items: usize) -> Self {
        self.parts().1.max_items = items;
        self
    }

    /// Sets the maximum size of all pages in bytes; a larger list fails with [`Error::Protocol`]. 64 MiB by default.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.parts().1.max_bytes = bytes;
        self
    }

    /// Returns a stream of the items, which requests each page when it is needed. It fails if a cursor expires: the
    /// items that it has already returned may be outdated.
    pub fn stream(self) -> ItemStream<M> {
        let (options, list) = self.into_parts();
        ItemStream::new(list, options)
    }
}

impl<M> Sealed for List<M> {}

impl<M: PaginatedMethod> RequestKind for List<M> {
    type Output = Vec<M::Item>;
    type Running = BoxFuture<'static, Result<Vec<M::Item>>>;

    fn run(self, options: RequestOptions) -> Self::Running {
        let mut stream = ItemStream::new(self, options);
        Box::pin(async move { stream.collect().await })
    }
}

/// A stream of the items of a paginated list. It ends after an error.
///
/// # Cancel safety
///
/// Dropping it cancels the request in flight.
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
#[must_use = "streams do nothing unless polled"]
pub struct ItemStream<M: PaginatedMethod> {
    list: List<M>,
    state: PageState,
    /// Items that were received and not returned yet.
    queued: VecDeque<M::Item>,
    /// All cursors received so far, to detect a repeated one.
    cursors: BTreeSet<Cursor>,
    pages: usize,
    items: usize,
    /// The size of all pages so far.
    bytes: usize,
    /// How much of the total timeout the pages have taken.
    time_spent: Duration,
}

enum PageState {
    /// The next page is requested with these options.
    NextPage(RequestOptions),
    /// A page is being fetched; the options are for the one after it.
    Fetching(Box<Call>, RequestOptions),
    Done,
}

impl<M: PaginatedMethod> ItemStream<M> {
    fn new(list: List<M>, options: RequestOptions) -> Self {
        Self {
            list,
            state: PageState::NextPage(options),
            queued: VecDeque::new(),
            cursors: BTreeSet::new(),
            pages: 0,
            items: 0,
            bytes: 0,
            time_spent: Duration::ZERO,
        }
    }

    /// Returns the next item; `None` at the end of the list.
    ///
    /// # Cancel safety
    ///
    /// Safe: an item is removed only when it is returned.
    pub async fn next(&mut self) -> Option<Result<M::Item>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    pub(super) fn time_spent(&self) -> Duration {
        self.time_spent
    }

    pub(super) async fn collect(&mut self) -> Result<Vec<M::Item>> {
        let mut items = Vec::new();
        let mut restart = match &self.state {
            PageState::NextPage(options) => Some(options.for_another_page(params_for(None))),
            PageState::Fetching(..) | PageState::Done => None,
        };
        while let Some(item) = self.next().await {
            match item {
                Ok(item) => items.push(item),
                Err(Error::Rpc(error))
                    if error.code == ErrorCode::INVALID_PARAMS && self.pages > 0 =>
                {
                    // Probably the cursor has expired, and the earlier pages belong to an outdated list. Start over,
                    // but only once: the server may reject every cursor.
                    let Some(mut options) = restart.take() else {
                        return Err(error.into());
                    };
                    options.cache_mode = options.cache_mode.reloading();
                    self.state = PageState::NextPage(options);
                    (self.pages, self.items, self.bytes) = (0, 0, 0);
                    self.cursors.clear();
                    items.clear();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(items)
    }

    /// Adds the size of a page. Called before the page is decoded, which takes more memory.
    fn add_bytes(&mut self, bytes: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        check_limit(self.bytes, self.list.max_bytes, "bytes")
    }

    /// Queues the items of a page and returns the next state.
    fn add_page(&mut self, result: M::Result, mut options: RequestOptions) -> Result<PageState> {
        let (items, next) = M::into_page(result);
        self.pages += 1;
        self.items += items.len();
        self.queued.extend(items);
        check_limit(self.items, self.list.max_items, "items")?;
        let Some(next) = next else {
            return Ok(PageState::Done);
        };
        check_limit(self.pages + 1, self.list.max_pages, "pages")?;
        if !self.cursors.insert(next.clone()) {
            return Err(Error::protocol(
                "the server repeated a cursor in `nextCursor`",
            ));
        }
        options.params = params_for(Some(next));
        Ok(PageState::NextPage(options))
    }
}

impl<M: PaginatedMethod> Stream for ItemStream<M> {
    type Item = Result<M::Item>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(item) = this.queued.pop_front() {
                return Poll::Ready(Some(Ok(item)));
            }
            match std::mem::replace(&mut this.state, PageState::Done) {
                PageState::Done => return Poll::Ready(None),
                PageState::NextPage(mut options) => {
                    options.time_spent = this.time_spent;
                    let next = options.for_another_page(params_for(None));
                    this.state = PageState::Fetching(Box::new(options.start()), next);
                }
                PageState::Fetching(mut call, mut options) => {
                    let Poll::Ready(reply) = Pin::new(&mut *call).poll(cx) else {
                        this.state = PageState::Fetching(call, options);
                        return Poll::Pending;
                    };
                    options.on_progress = call.take_on_progress();
                    this.time_spent = call.time_spent();
                    let result = reply.and_then(|reply| {
                        this.add_bytes(reply.json().as_bytes().len())?;
                        reply.decode()
                    });
                    match result.and_then(|result| this.add_page(result, options)) {
                        Ok(state) => this.state = state,
                        Err(error) => {
                            this.queued.clear();
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                }
            }
        }
    }
}

impl<M: PaginatedMethod> std::fmt::Debug for ItemStream<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ItemStream")
            .field("method", &M::NAME)
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}

impl PaginatedMethod for ListToolsRequest {
    type Item = Tool;

    fn into_page(result: ListToolsResult) -> (Vec<Tool>, Option<Cursor>) {
        (result.tools, result.next_cursor)
    }
}

impl PaginatedMethod for ListResourcesRequest {
    type Item = Resource;

    fn into_page(result: ListResourcesResult) -> (Vec<Resource>, Option<Cursor>) {
        (result.resources, result.next_cursor)
    }
}

impl PaginatedMethod for ListResourceTemplatesRequest {
    type Item = ResourceTemplate;

    fn into_page(result: ListResourceTemplatesResult) -> (Vec<ResourceTemplate>, Option<Cursor>) {
        (result.resource_templates, result.next_cursor)
    }
}

impl PaginatedMethod for ListPromptsRequest {
    type Item = Prompt;

    fn into_page(result: ListPromptsResult) -> (Vec<Prompt>, Option<Cursor>) {
        (result.prompts, result.next_cursor)
    }
}

fn check_limit(size: usize, max: usize, unit: &str) -> Result<()> {
    match size > max {
        true => Err(Error::protocol(format!(
            "the list exceeds the limit of {max} {unit}"
        ))),
        false => Ok(()),
    }
}

fn params_for(cursor: Option<Cursor>) -> Result<bowline_types::Json> {
    let mut params = PaginatedRequestParams::default();
    params.cursor = cursor;
    encode_object(&params)
}

const MAX_PAGES: usize = 1_000;
const MAX_ITEMS: usize = 100_000;
const MAX_BYTES: usize = 64 * 1024 * 1024;
