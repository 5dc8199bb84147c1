//! Servers that are a few lines of shell. A line is a message, and its answer is a line.

/// A healthy server of 2026-07-28. `$answer` prints a result for the id of the last request.
const MODERN: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
refuse() { printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}\n' "$1"; }
DISCOVERY='{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}'
TOOLS='{"resultType":"complete","tools":[{"name":"slow","description":"Waits.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}],"ttlMs":0,"cacheScope":"private"}'
start() { :; }
discover() { answer "$id" "$DISCOVERY"; }
initialize() { refuse "$id"; }
call() { :; }
cancelled() { :; }
"#;

/// What makes it a healthy server of revisions until 2025-11-25.
const LEGACY: &str = r#"
TOOLS='{"tools":[{"name":"slow","description":"Waits.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}'
discover() { refuse "$id"; }
initialize() {
  version=${line#*\"protocolVersion\":\"}
  version=${version%%\"*}
  answer "$id" "{\"protocolVersion\":\"$version\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"sh\",\"version\":\"1\"}}"
}
"#;

const LOOP: &str = r#"
start
while read -r line; do
  id=${line#*\"id\":}
  id=${id%%[,\}]*}
  case $line in
    *'"method":"server/discover"'*) discover ;;
    *'"method":"initialize"'*) initialize ;;
    *'"method":"tools/list"'*) answer "$id" "$TOOLS" ;;
    *'"method":"tools/call"'*) call ;;
    *'"method":"ping"'*) answer "$id" '{}' ;;
    *'"method":"notifications/cancelled"'*) cancelled ;;
    *'"method":"notifications/'*) ;;
    *) refuse "$id" ;;
  esac
done
"#;

/// Returns the script of a modern server, with functions that differ.
pub(crate) fn modern(different: &str) -> String {
    [MODERN, different, LOOP].concat()
}

/// Returns the script of a legacy server, with functions that differ.
pub(crate) fn legacy(different: &str) -> String {
    [MODERN, LEGACY, different, LOOP].concat()
}
