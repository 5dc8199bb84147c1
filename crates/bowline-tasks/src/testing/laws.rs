//! The laws: each holds for every store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::store::{
    Appended, Attempt, ChangeHint, Clock as _, JournalEntry, JournalKind, Quota, Renewal, RunMode,
    StoreError, StoreLimits, TaskChange, TaskChanges, TaskOutcome, TaskRecord, TaskStatus,
    TaskStore, Updated, Version,
};
use crate::{ReplicaId, TaskId};
use bowline_types::{ErrorCode, Json, RpcError};

use super::{LEASE, MakeStores, SECOND, json, replica, task};

/// Checks that a created task is read by every process.
pub async fn a_created_task_is_read_by_every_process(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let owner = replica();
    let entry = JournalEntry::new(JournalKind::Answer, "name", json(r#"{"a":"Ä\n"}"#));
    let new = task(owner)
        .principal("ada")
        .arguments(json(r#"{"file":"a.png"}"#))
        .meta(json(r#"{"progressToken":1}"#))
        .context(json(r#"{"version":"x"}"#))
        .run_mode(RunMode::AtMostOnce)
        .ttl(Duration::from_micros(60_000_500))
        .removal_delay(SECOND)
        .poll_interval(Duration::from_millis(250))
        .status_message("starting")
        .journal_entry(entry.clone())
        .journal_entry(JournalEntry::new(JournalKind::Answer, "name", Json::null()));

    let created = stores.first.create(new).await.unwrap();

    let now = stores.clock.now();
    assert_eq!(created.status(), TaskStatus::Working);
    assert_eq!((created.owner, created.attempt), (owner, Attempt::FIRST));
    assert_eq!(created.version, Version::FIRST);
    assert_eq!((created.created_at, created.updated_at), (now, now));
    assert_eq!(created.ttl, Some(SECOND * 60));
    assert_eq!(created.expires_at, Some(now.after(SECOND * 60)));
    assert_eq!(created.remove_at, Some(now.after(SECOND * 61)));
    assert_eq!(created.leased_until, Some(now.after(LEASE)));
    assert_eq!(created.request.tool, "convert");
    assert_eq!(created.request.arguments, json(r#"{"file":"a.png"}"#));
    for store in [&stores.first, &stores.second] {
        assert_eq!(read(store, created.id).await, created);
        assert_eq!(
            store.journal(created.id).await.unwrap(),
            vec![entry.clone()]
        );
    }
}

/// Checks that an id is used once.
pub async fn an_id_is_used_once(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let new = task(replica());
    let first = stores.first.create(new.clone()).await.unwrap();

    let again = stores.second.create(new.status_message("other")).await;

    assert!(matches!(again, Err(StoreError::AlreadyExists { id }) if id == first.id));
    assert_eq!(read(&stores.first, first.id).await, first);
}

/// Checks that a final state is written once.
pub async fn a_final_state_is_written_once(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "no disk");
    for outcome in [
        TaskOutcome::Completed(json(r#"{"content":[]}"#)),
        TaskOutcome::Failed(error.with_data(json("[1]"))),
        TaskOutcome::Cancelled,
    ] {
        let task = stores.first.create(task(replica())).await.unwrap();
        stores.clock.advance(SECOND);
        let finish = TaskChange::new()
            .fence(task.fence())
            .finish(outcome.clone());
        let version = done(stores.first.update(task.id, task.version, finish).await);

        let record = read(&stores.second, task.id).await;
        assert_eq!(record.outcome, Some(outcome));
        assert_eq!((record.version, record.leased_until), (version, None));
        assert_eq!(record.updated_at, stores.clock.now());
        for change in [
            TaskChange::new().cancel(),
            TaskChange::new().complete(Json::null()),
            TaskChange::new().fence(task.fence()).status_message("x"),
            TaskChange::new().answer("a", Json::null()),
            TaskChange::new(),
        ] {
            for expected in [task.version, version] {
                let update = stores.second.update(task.id, expected, change.clone());
                let conflict = Updated::Conflict(Box::new(record.clone()));
                assert_eq!(update.await.unwrap(), conflict);
            }
        }
        assert_eq!(read(&stores.first, task.id).await, record);
    }
}

/// Checks that of many final states one wins.
pub async fn of_many_final_states_one_wins(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let task = stores.first.create(task(replica())).await.unwrap();
    let writers = (0..16).map(|number: usize| {
        let store = [&stores.first, &stores.second][number % 2].clone();
        tokio::spawn(async move {
            let result = Json::encode(&number).unwrap();
            let finish = TaskChange::new().complete(result.clone());
            match store.update(task.id, task.version, finish).await.unwrap() {
                Updated::Done(_) => Some(result),
                _ => None,
            }
        })
    });

    let mut winners = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        winners.extend(writer.await.unwrap());
    }

    assert_eq!(winners.len(), 1);
    let record = read(&stores.first, task.id).await;
    assert_eq!(record.outcome, winners.pop().map(TaskOutcome::Completed));
}

/// Checks that an update needs the current version.
pub async fn an_update_needs_the_current_version(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let task = stores.first.create(task(replica())).await.unwrap();
    let change = TaskChange::new().status_message("half");
    let version = done(stores.second.update(task.id, task.version, change).await);

    let late = TaskChange::new().status_message("late");
    let late = stores.first.update(task.id, task.version, late);

    assert_eq!(version, task.version.next());
    let Updated::Conflict(current) = late.await.unwrap() else {
        panic!("a change of an old version was stored");
    };
    assert_eq!(current.status_message.as_deref(), Some("half"));
    assert_eq!(read(&stores.first, task.id).await, *current);
}

/// Checks that a change without effect stores nothing.
pub async fn a_change_without_effect_stores_nothing(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let new = task(replica()).status_message("same");
    let task = stores.first.create(new).await.unwrap();
    stores.clock.advance(SECOND);

    let change = TaskChange::new()
        .status_message("same")
        .withdraw("unknown")
        .answer("unknown", Json::null());
    let version = done(stores.first.update(task.id, task.version, change).await);

    assert_eq!(version, task.version);
    assert_eq!(read(&stores.second, task.id).await, task);
}

/// Checks that a process that lost its lease writes nothing.
pub async fn a_process_that_lost_its_lease_writes_nothing(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let (old, new) = (replica(), replica());
    let before = stores.first.create(task(old)).await.unwrap();
    stores.clock.advance(LEASE);
    let after = claim(&stores.second, new, 1).await.remove(0);
    // The owner of an earlier attempt may be the owner again; only its present attempt counts.
    stores.clock.advance(LEASE);
    let own = claim(&stores.first, old, 1).await.remove(0);
    assert_eq!(own.fence().owner, before.fence().owner);

    for lost in [before.fence(), after.fence()] {
        let entry = JournalEntry::new(JournalKind::Step, "a", Json::null());
        let appended = stores.first.append(own.id, lost, entry).await.unwrap();
        assert_eq!(appended, Appended::LeaseLost);
        for expected in [before.version, own.version] {
            let change = TaskChange::new().fence(lost).complete(Json::null());
            let updated = stores.first.update(own.id, expected, change).await.unwrap();
            assert_eq!(updated, Updated::LeaseLost);
        }
        let mut held = own.held();
        held.attempt = lost.attempt;
        let renewal = stores
            .first
            .renew(lost.owner, &[held], LEASE)
            .await
            .unwrap();
        assert_eq!(renewal.lost, [own.id]);
    }

    assert_eq!(read(&stores.second, own.id).await, own);
    assert_eq!(stores.second.journal(own.id).await.unwrap(), []);
}

/// Checks that an expired lease is held until it is claimed.
pub async fn an_expired_lease_is_held_until_it_is_claimed(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let owner = replica();
    let task = stores.first.create(task(owner)).await.unwrap();
    stores.clock.advance(LEASE * 2);

    let change = TaskChange::new().fence(task.fence()).status_message("x");
    done(stores.first.update(task.id, task.version, change).await);
    let entry = JournalEntry::new(JournalKind::Step, "a", Json::null());
    let appended = stores.first.append(task.id, task.fence(), entry).await;
    let renewal = stores.first.renew(owner, &[task.held()], LEASE).await;

    assert_eq!(appended.unwrap(), Appended::Done);
    assert_eq!(renewal.unwrap().lost, []);
    assert_eq!(claim(&stores.second, replica(), 9).await, []);
}

/// Checks that an entry is appended once by kind and name.
pub async fn an_entry_is_appended_once_by_kind_and_name(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let task = stores.first.create(task(replica())).await.unwrap();
    let entry = |kind, name: &str, value| JournalEntry::new(kind, name, json(value));

    for (entry, expected) in [
        (entry(JournalKind::Step, "a", "1"), Appended::Done),
        (
            entry(JournalKind::Step, "a", "2"),
            Appended::Existing(json("1")),
        ),
        (entry(JournalKind::Started, "a", "3"), Appended::Done),
        (entry(JournalKind::Remembered, "a", "4"), Appended::Done),
        (entry(JournalKind::Answer, "a", "5"), Appended::Done),
        (entry(JournalKind::Step, "", "6"), Appended::Done),
        (
            entry(JournalKind::Started, "a", "7"),
            Appended::Existing(json("3")),
        ),
    ] {
        let appended = stores.first.append(task.id, task.fence(), entry).await;
        assert_eq!(appended.unwrap(), expected);
    }

    assert_eq!(read(&stores.first, task.id).await, task);
}

/// Checks that a journal keeps its order and ends with its task.
pub async fn a_journal_keeps_its_order_and_ends_with_its_task(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let task = stores.first.create(task(replica())).await.unwrap();
    let names = ["z", "a", "ä", "", "m"];
    for name in names {
        let entry = JournalEntry::new(JournalKind::Step, name, json("{}"));
        stores
            .first
            .append(task.id, task.fence(), entry)
            .await
            .unwrap();
    }

    let journal = stores.second.journal(task.id).await.unwrap();
    assert!(journal.iter().map(|entry| entry.name.as_str()).eq(names));
    finish(&stores.first, &task).await;
    assert_eq!(stores.second.journal(task.id).await.unwrap(), []);
    let entry = JournalEntry::new(JournalKind::Step, "late", json("{}"));
    let late = stores.first.append(task.id, task.fence(), entry).await;
    assert_eq!(late.unwrap(), Appended::LeaseLost);
}

/// Checks that an expired lease is claimed and no other.
pub async fn an_expired_lease_is_claimed_and_no_other(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let (old, new) = (replica(), replica());
    let mut created = Vec::new();
    for _ in 0..3 {
        created.push(stores.first.create(task(old)).await.unwrap());
        stores.clock.advance(SECOND);
    }
    let finished = stores.first.create(task(old)).await.unwrap();
    finish(&stores.first, &finished).await;
    stores.clock.advance(LEASE - SECOND * 2);
    assert_eq!(claim(&stores.second, new, 0).await, []);

    // The third lease ends a second from now.
    let first = claim(&stores.second, new, 1).await;
    let second = claim(&stores.second, new, 9).await;

    for (claimed, created) in [(&first, &created[0]), (&second, &created[1])] {
        let mut expected = created.clone();
        expected.claim(new, stores.clock.now().after(LEASE));
        assert_eq!(*claimed, [expected.clone()]);
        assert_eq!(expected.attempt, Attempt::from_number(2));
        assert_eq!(read(&stores.first, created.id).await, expected);
    }
}

/// Checks that every task is claimed by one process.
pub async fn every_task_is_claimed_by_one_process(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let mut created = BTreeSet::new();
    for _ in 0..40 {
        created.insert(stores.first.create(task(replica())).await.unwrap().id);
    }
    stores.clock.advance(LEASE);
    let mut claimers = tokio::task::JoinSet::new();
    for number in 0..8 {
        let store = [&stores.first, &stores.second][number % 2].clone();
        claimers.spawn(async move {
            let owner = replica();
            let mut claimed = Vec::new();
            loop {
                let some = claim(&store, owner, 3).await;
                if some.is_empty() {
                    return claimed;
                }
                claimed.extend(some.into_iter().map(|record| record.id));
            }
        });
    }

    let claimed = claimers.join_all().await.into_iter().flatten();
    let claimed: Vec<TaskId> = claimed.collect();

    assert_eq!(claimed.len(), created.len(), "a task was claimed twice");
    assert_eq!(BTreeSet::from_iter(claimed), created);
}

/// Checks that a released task is claimed at once.
pub async fn a_released_task_is_claimed_at_once(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let task = stores.first.create(task(replica())).await.unwrap();

    let release = TaskChange::new().fence(task.fence()).release();
    done(stores.first.update(task.id, task.version, release).await);
    let claimed = claim(&stores.second, replica(), 9).await;

    assert_eq!(claimed.len(), 1);
    let late = TaskChange::new().fence(task.fence()).cancel();
    let late = stores.first.update(task.id, claimed[0].version, late).await;
    assert_eq!(late.unwrap(), Updated::LeaseLost);
}

/// Checks that renewing returns lost and changed tasks.
pub async fn renewing_returns_lost_and_changed_tasks(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let owner = replica();
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(stores.first.create(task(owner)).await.unwrap());
    }
    let [kept, changed, cancelled, deleted, claimed] = &tasks[..] else {
        panic!("five tasks were created");
    };
    let flag = TaskChange::new().request_cancel();
    done(
        stores
            .second
            .update(changed.id, changed.version, flag)
            .await,
    );
    finish(&stores.second, cancelled).await;
    assert!(stores.second.delete(deleted.id).await.unwrap());
    let release = TaskChange::new().release();
    done(
        stores
            .first
            .update(claimed.id, claimed.version, release)
            .await,
    );
    assert_eq!(claim(&stores.second, replica(), 9).await.len(), 1);

    stores.clock.advance(LEASE - SECOND);
    let held: Vec<_> = tasks.iter().map(TaskRecord::held).collect();
    let renewal = stores.first.renew(owner, &held, LEASE).await.unwrap();
    let strange = stores.first.renew(replica(), &held, LEASE).await.unwrap();
    stores.clock.advance(LEASE - SECOND);

    assert_eq!(renewal.lost, [cancelled.id, deleted.id, claimed.id]);
    assert_eq!(renewal.changed, [changed.id]);
    assert_eq!(strange.lost.len(), held.len());
    let expired = claim(&stores.second, replica(), 9).await;
    assert!(expired.iter().map(|record| record.id).eq([claimed.id]));
    let renewed = read(&stores.second, kept.id).await;
    assert_eq!(renewed.leased_until, Some(stores.clock.now().after(SECOND)));
    assert_eq!(renewed.version, kept.version);
    let none = stores.first.renew(owner, &[], LEASE).await.unwrap();
    assert_eq!(none, Renewal::default());
}

/// Checks that an expired record is absent and then removed.
pub async fn an_expired_record_is_absent_and_then_removed(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let owner = replica();
    let new = || task(owner).principal("ada").removal_delay(SECOND);
    let forever = stores.first.create(new()).await.unwrap();
    let mut short = Vec::new();
    for _ in 0..3 {
        short.push(stores.first.create(new().ttl(SECOND)).await.unwrap());
    }
    finish(&stores.first, &short[0]).await;
    stores.clock.advance(SECOND * 2 - Duration::from_millis(1));
    assert_eq!(stores.first.remove_expired(9).await.unwrap(), 0);
    assert_eq!(read(&stores.first, short[1].id).await, short[1]);

    stores.clock.advance(Duration::from_millis(1));
    for task in &short {
        assert_absent(&stores.second, task).await;
    }
    let page = stores.first.list("ada", None, 9).await.unwrap();
    assert!(page.tasks.iter().map(|task| task.id).eq([forever.id]));
    stores.clock.advance(LEASE);
    let claimed = claim(&stores.first, owner, 9).await;
    assert!(claimed.iter().map(|record| record.id).eq([forever.id]));

    assert_eq!(stores.first.remove_expired(2).await.unwrap(), 2);
    assert_eq!(stores.second.remove_expired(2).await.unwrap(), 1);
    assert_eq!(stores.first.remove_expired(2).await.unwrap(), 0);
}

/// Checks that a question is answered once and its key is not reused.
pub async fn a_question_is_answered_once_and_its_key_is_not_reused(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let task = stores.first.create(task(replica())).await.unwrap();
    let ask = |text| {
        TaskChange::new()
            .fence(task.fence())
            .ask("name", json(text))
    };
    let asked = ask("1").ask("age", json("2"));
    let version = done(stores.first.update(task.id, task.version, asked).await);
    let open = read(&stores.second, task.id).await;
    assert_eq!(open.status(), TaskStatus::InputRequired);
    assert!(open.questions.keys().eq(["age", "name"]));

    let answer = TaskChange::new().answer("name", json(r#""Ada""#));
    let version = done(stores.second.update(task.id, version, answer).await);
    let partly = read(&stores.first, task.id).await;
    assert_eq!(partly.status(), TaskStatus::InputRequired);
    let second = TaskChange::new().answer("name", json(r#""Bob""#));
    let ignored = done(stores.second.update(task.id, version, second).await);
    let asked_again = done(stores.first.update(task.id, version, ask("3")).await);
    assert_eq!((ignored, asked_again), (version, version));

    let withdraw = TaskChange::new().fence(task.fence()).withdraw("age");
    done(stores.first.update(task.id, version, withdraw).await);
    let record = read(&stores.second, task.id).await;
    assert_eq!(record.status(), TaskStatus::Working);
    assert!(
        record
            .answers
            .into_iter()
            .eq([("name".to_owned(), json(r#""Ada""#))])
    );
    finish(&stores.first, &read(&stores.first, task.id).await).await;
    assert!(read(&stores.second, task.id).await.answers.is_empty());
}

/// Checks that a cancel request is a flag.
pub async fn a_cancel_request_is_a_flag(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let task = stores.first.create(task(replica())).await.unwrap();

    let flag = TaskChange::new().request_cancel();
    let version = done(
        stores
            .second
            .update(task.id, task.version, flag.clone())
            .await,
    );
    let again = done(stores.second.update(task.id, version, flag).await);

    let record = read(&stores.first, task.id).await;
    assert!(record.is_cancel_requested);
    assert_eq!(record.status(), TaskStatus::Working);
    assert_eq!(again, version);
}

/// Checks that quotas apply to each principal.
pub async fn quotas_apply_to_each_principal(make: &MakeStores) {
    let limits = StoreLimits::new();
    let limits = limits
        .max_tasks_per_principal(3)
        .max_unfinished_per_principal(2);
    let stores = make(limits.max_bytes_per_principal(6000)).await;
    let new = || task(replica()).principal("ada");
    let create = |new| stores.first.create(new);
    let first = create(new().ttl(SECOND).removal_delay(SECOND))
        .await
        .unwrap();
    let second = create(new()).await.unwrap();

    expect_quota(create(new()).await, Quota::UnfinishedTasks);
    create(task(replica())).await.unwrap();
    create(task(replica()).principal("")).await.unwrap();
    create(task(replica()).principal("bob")).await.unwrap();
    finish(&stores.second, &first).await;
    create(new()).await.unwrap();
    finish(&stores.second, &second).await;
    expect_quota(create(new()).await, Quota::Tasks);

    // What has expired does not count, even before it is removed.
    stores.clock.advance(SECOND * 2);
    let long = Json::encode(&"x".repeat(4000)).unwrap();
    expect_quota(create(new().arguments(long.clone())).await, Quota::Bytes);
    stores.second.delete(second.id).await.unwrap();
    let last = create(new().arguments(json("[]"))).await.unwrap();
    let grow = TaskChange::new().ask("a", long.clone());
    expect_quota(
        stores.first.update(last.id, last.version, grow).await,
        Quota::Bytes,
    );
    let entry = JournalEntry::new(JournalKind::Step, "a", long);
    expect_quota(
        stores.first.append(last.id, last.fence(), entry).await,
        Quota::Bytes,
    );
    assert_eq!(read(&stores.second, last.id).await, last);
}

/// Checks that a full store lets its tasks finish.
pub async fn a_full_store_lets_its_tasks_finish(make: &MakeStores) {
    let limits = StoreLimits::new().max_tasks(2).max_task_bytes(3000);
    let stores = make(limits.max_bytes(5100)).await;
    let long = Json::encode(&"x".repeat(900)).unwrap();
    let small = stores.first.create(task(replica())).await.unwrap();
    let large = task(replica()).arguments(long.clone());
    let large = stores.first.create(large).await.unwrap();

    let third = stores.first.create(task(replica())).await;
    assert!(matches!(third, Err(StoreError::Full { .. })), "{third:?}");
    let grow = TaskChange::new().ask("a", long.clone());
    let too_large = stores
        .first
        .update(large.id, large.version, grow.clone())
        .await;
    let is_too_large = matches!(too_large, Err(StoreError::TooLarge { limit: 3000, .. }));
    assert!(is_too_large, "{too_large:?}");
    let full = stores
        .first
        .update(small.id, small.version, grow.ask("b", long.clone()));
    let full = full.await.unwrap_err();
    assert!(matches!(
        full,
        StoreError::TooLarge { .. } | StoreError::Full { .. }
    ));
    let entry = JournalEntry::new(
        JournalKind::Step,
        "a",
        Json::encode(&"x".repeat(990)).unwrap(),
    );
    stores
        .first
        .append(small.id, small.fence(), entry.clone())
        .await
        .unwrap();
    let other = JournalEntry::new(JournalKind::Step, "b", json("1"));
    let full = stores.first.append(large.id, large.fence(), other).await;
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    assert_eq!(stores.second.journal(small.id).await.unwrap(), [entry]);

    // A task always has room for a short error and its message.
    let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "no room");
    let change = TaskChange::new().fail(error).status_message("no room");
    done(stores.first.update(large.id, large.version, change).await);
    // The journal is removed in the same step, so the result fits.
    let change = TaskChange::new().complete(Json::encode(&"y".repeat(900)).unwrap());
    done(stores.first.update(small.id, small.version, change).await);
    stores.second.delete(small.id).await.unwrap();
    stores.first.create(task(replica())).await.unwrap();
}

/// Checks that tasks of a principal are listed in pages.
pub async fn tasks_of_a_principal_are_listed_in_pages(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let mut created = Vec::new();
    for number in 0..7 {
        let new = task(replica())
            .principal("ada")
            .status_message("s")
            .ttl(SECOND * 100);
        let new = new.poll_interval(SECOND);
        let record = stores.first.create(new).await.unwrap();
        stores
            .first
            .create(task(replica()).principal("bob"))
            .await
            .unwrap();
        stores.first.create(task(replica())).await.unwrap();
        created.push(record);
        if number % 2 == 1 {
            stores.clock.advance(SECOND);
        }
    }
    created.sort_by_key(TaskRecord::position);
    finish(&stores.first, &created[2]).await;
    created[2] = read(&stores.first, created[2].id).await;

    let first = stores.second.list("ada", None, 3).await.unwrap();
    // A page starts after a position, even if its task is gone.
    stores.first.delete(created[2].id).await.unwrap();
    let second = stores.second.list("ada", first.next, 3).await.unwrap();
    let third = stores.second.list("ada", second.next, 3).await.unwrap();
    let whole = stores.second.list("bob", None, 7).await.unwrap();
    let unknown = stores.second.list("", None, 3).await.unwrap();

    let pages = [first.tasks, second.tasks, third.tasks].concat();
    assert_eq!(
        pages,
        created.iter().map(TaskRecord::summary).collect::<Vec<_>>()
    );
    assert_eq!(pages[2].status, TaskStatus::Completed);
    assert_eq!(third.next, None);
    assert_eq!((whole.tasks.len(), whole.next), (7, None));
    assert_eq!((unknown.tasks, unknown.next), (vec![], None));
    assert_eq!(stores.first.list("ada", None, 0).await.unwrap().tasks, []);
}

/// Checks that a deleted task is gone with its journal.
pub async fn a_deleted_task_is_gone_with_its_journal(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let entry = JournalEntry::new(JournalKind::Step, "a", json("1"));
    let new = task(replica()).journal_entry(entry);
    let task = stores.first.create(new.clone()).await.unwrap();

    assert!(stores.second.delete(task.id).await.unwrap());

    assert_absent(&stores.first, &task).await;
    assert!(!stores.first.delete(task.id).await.unwrap());
}

/// Checks that an absent task has no effects.
pub async fn an_absent_task_has_no_effects(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let other = make(StoreLimits::new()).await;
    let absent = other.first.create(task(replica())).await.unwrap();

    assert_absent(&stores.first, &absent).await;

    assert_eq!(claim(&stores.first, replica(), 9).await, []);
    assert_eq!(stores.first.remove_expired(9).await.unwrap(), 0);
}

/// Checks that changes reach every process.
pub async fn changes_reach_every_process(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let mut changes = [stores.first.changes(), stores.second.changes()];
    let task = stores.first.create(task(replica())).await.unwrap();
    expect_hint(&mut changes, task.id, task.version).await;

    let flag = TaskChange::new().request_cancel();
    let version = done(stores.second.update(task.id, task.version, flag).await);
    expect_hint(&mut changes, task.id, version).await;

    stores.clock.advance(LEASE);
    let claimed = claim(&stores.first, replica(), 1).await.remove(0);
    expect_hint(&mut changes, task.id, claimed.version).await;
    finish(&stores.second, &claimed).await;
    expect_hint(&mut changes, task.id, claimed.version.next()).await;
}

/// Checks that a listener that is too slow is told so.
pub async fn a_listener_that_is_too_slow_is_told_so(make: &MakeStores) {
    let stores = make(StoreLimits::new()).await;
    let mut changes = stores.first.changes();
    for _ in 0..50 {
        stores.first.create(task(replica())).await.unwrap();
    }
    let mut claimed = Vec::new();
    for _ in 0..100 {
        stores.clock.advance(LEASE);
        claimed = claim(&stores.first, replica(), 50).await;
    }

    let first = changes.next().await;

    assert_eq!(first, Some(ChangeHint::TooMany));
    let (id, version) = (claimed[49].id, claimed[49].version);
    expect_hint(std::slice::from_mut(&mut changes), id, version).await;
}

async fn read(store: &Arc<dyn TaskStore>, id: TaskId) -> TaskRecord {
    store.read(id).await.unwrap().expect("the task is stored")
}

async fn claim(store: &Arc<dyn TaskStore>, owner: ReplicaId, max: usize) -> Vec<TaskRecord> {
    store.claim(owner, LEASE, max).await.unwrap()
}

async fn finish(store: &Arc<dyn TaskStore>, record: &TaskRecord) {
    let change = TaskChange::new().complete(json("{}"));
    done(store.update(record.id, record.version, change).await);
}

fn done(updated: Result<Updated, StoreError>) -> Version {
    match updated.unwrap() {
        Updated::Done(version) => version,
        other => panic!("expected an update, got {other:?}"),
    }
}

fn expect_quota<T: std::fmt::Debug>(result: Result<T, StoreError>, expected: Quota) {
    match result {
        Err(StoreError::QuotaExceeded { quota, .. }) if quota == expected => {}
        other => panic!("expected the quota {expected}, got {other:?}"),
    }
}

/// Checks that the store does nothing for a task that it does not have.
async fn assert_absent(store: &Arc<dyn TaskStore>, task: &TaskRecord) {
    let entry = JournalEntry::new(JournalKind::Step, "a", Json::null());
    let change = TaskChange::new().cancel();
    assert_eq!(store.read(task.id).await.unwrap(), None);
    assert_eq!(store.journal(task.id).await.unwrap(), []);
    let updated = store.update(task.id, task.version, change).await;
    assert_eq!(updated.unwrap(), Updated::NotFound);
    let appended = store.append(task.id, task.fence(), entry).await;
    assert_eq!(appended.unwrap(), Appended::LeaseLost);
    let renewal = store.renew(task.owner, &[task.held()], LEASE).await;
    assert_eq!(renewal.unwrap().lost, [task.id]);
}

/// Waits until each listener has the hint. Hints may come twice.
async fn expect_hint(changes: &mut [TaskChanges], id: TaskId, version: Version) {
    for listener in changes {
        while listener.next().await != Some(ChangeHint::Changed { id, version }) {}
    }
}
