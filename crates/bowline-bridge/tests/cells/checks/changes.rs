//! Changes that the upstream announces: of its list of tools, and of a resource.

use serde_json::json;

use super::Ends;
use crate::front::FrontClient;
use crate::upstream::{Change, UpstreamServer};

/// The announcement arrives, and the list that is read afterwards is the new one.
pub(super) async fn list_change<F: FrontClient, U: UpstreamServer>(
    ends: &mut Ends<'_, F, U>,
) -> Result<(), String> {
    ends.expect_offer("/tools/listChanged")?;
    let watch = ends.front.watch(Change::ToolList).await?;
    if lists_added(ends).await? {
        return Err("the list has changed before its announcement".to_owned());
    }
    ends.upstream.watched(Change::ToolList).await;

    ends.upstream.announce(Change::ToolList);

    ends.front.changed(&watch).await?;
    match lists_added(ends).await? {
        true => ends.front.unwatch(watch).await,
        false => Err("the list has not changed after its announcement".to_owned()),
    }
}

async fn lists_added<F: FrontClient, U: UpstreamServer>(
    ends: &mut Ends<'_, F, U>,
) -> Result<bool, String> {
    let list = ends.front.request("tools/list", json!({})).await?;
    let tools = list["tools"].as_array();
    let tools = tools.ok_or_else(|| format!("expected a list of tools, got {list}"))?;
    let may_be_cached = list["ttlMs"].is_u64() && list["cacheScope"].is_string();
    if ends.front_endpoint.revision.is_modern() && !may_be_cached {
        return Err(format!("expected `ttlMs` and `cacheScope`, got {list}"));
    }
    Ok(tools.iter().any(|tool| tool["name"] == "added"))
}

/// The subscription reaches the upstream, the update arrives, and the upstream is told of the end.
pub(super) async fn resource_update<F: FrontClient, U: UpstreamServer>(
    ends: &mut Ends<'_, F, U>,
) -> Result<(), String> {
    ends.expect_offer("/resources/subscribe")?;
    let resource = Change::Resource("test://a");
    let watch = ends.front.watch(resource).await?;
    ends.upstream.watched(resource).await;

    ends.upstream.announce(resource);

    ends.front.changed(&watch).await?;
    ends.front.unwatch(watch).await?;
    ends.upstream.unwatched(resource).await;
    Ok(())
}
