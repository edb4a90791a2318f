//! The Redis store beside the real Redisson, in both directions: one test per version, object and cell of the matrix in `docs/redisson.md`.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod count;
mod defects;
mod downgrade;
mod driver;
mod exclude;
mod expire;
mod force;
mod free;
mod holder;
mod names;
mod numbers;
mod object;
mod order;
mod queues;
mod readers;
mod reenter;
mod renew;
mod shares;
mod stalls;
mod tokens;
mod wake;
mod world;

use lockkeeper_testkit::server;

/// One test per cell, in a module named after the object; an object that goes with the cell stands in braces.
macro_rules! cells {
    ($version:ident $of:ident {$object:ident}: $($group:ident::$cell:ident)*) => {
        mod $of {
            $(
                #[test]
                fn $cell() {
                    let name = concat!(module_path!(), "::", stringify!($cell));
                    crate::world::run(crate::driver::Version::$version, name, |world| {
                        crate::$group::$cell(world, crate::object::Object::$object)
                    });
                }
            )*
        }
    };
    ($version:ident $of:ident: $($group:ident::$cell:ident)*) => {
        mod $of {
            $(
                #[test]
                fn $cell() {
                    let name = concat!(module_path!(), "::", stringify!($cell));
                    crate::world::run(crate::driver::Version::$version, name, crate::$group::$cell);
                }
            )*
        }
    };
}

/// What holds with every version.
macro_rules! matrix {
    ($version:ident) => {
        cells! { $version mutex {Mutex}:
            exclude::ours_keeps_theirs_out exclude::theirs_keeps_ours_out
            wake::our_release_calls_their_waiter wake::their_release_calls_our_waiter wake::their_waiter_comes_in_among_64_of_ours
            reenter::their_hold_count_survives_our_traffic reenter::ours_is_held_until_the_last_release
            expire::their_killed_holder_is_gone_with_its_lease expire::our_killed_holder_is_gone_with_its_lease
            expire::their_late_release_is_refused expire::our_late_release_is_refused
            renew::their_watchdog_keeps_theirs renew::our_keeper_keeps_ours
            renew::their_watchdog_does_not_keep_ours renew::our_keeper_does_not_keep_theirs
            count::ten_thousand_additions_of_both_are_all_there
            force::their_force_is_told_where_another_of_ours_waits
            force::their_force_takes_ours force::our_force_takes_theirs
            names::braces_and_letters_mean_the_same
        }
        cells! { $version fair {Fair}:
            exclude::ours_keeps_theirs_out exclude::theirs_keeps_ours_out
            wake::our_release_calls_their_waiter wake::their_release_calls_our_waiter wake::their_waiter_comes_in_among_64_of_ours
            wake::our_plain_release_calls_their_fair_waiter
            order::both_are_served_in_order_theirs_first order::both_are_served_in_order_ours_first
            reenter::their_hold_count_survives_our_traffic reenter::ours_is_held_until_the_last_release
            expire::their_killed_holder_is_gone_with_its_lease expire::their_late_release_is_refused
            renew::their_watchdog_keeps_theirs renew::our_keeper_keeps_ours
            renew::their_watchdog_does_not_keep_ours renew::our_keeper_does_not_keep_theirs
            count::a_thousand_additions_of_both_are_all_there
            force::their_force_serves_our_next_waiter
            force::their_force_takes_ours force::our_force_takes_theirs
            names::braces_and_letters_mean_the_same
        }
        cells! { $version write {Write}:
            exclude::ours_keeps_theirs_out exclude::theirs_keeps_ours_out
            wake::our_release_calls_their_waiter wake::their_release_calls_our_waiter wake::their_waiter_comes_in_among_64_of_ours
            reenter::their_hold_count_survives_our_traffic reenter::ours_is_held_until_the_last_release
            expire::their_killed_holder_is_gone_with_its_lease expire::our_killed_holder_is_gone_with_its_lease
            expire::their_late_release_is_refused expire::our_late_release_is_refused
            renew::their_watchdog_keeps_theirs renew::our_keeper_keeps_ours
            renew::their_watchdog_does_not_keep_ours renew::our_keeper_does_not_keep_theirs
            count::a_thousand_additions_of_both_are_all_there
            force::their_force_is_told_where_another_of_ours_waits
            force::their_force_takes_ours force::our_force_takes_theirs
            names::braces_and_letters_mean_the_same
        }
        cells! { $version read {Read}:
            exclude::readers_of_both_share_and_keep_writers_out
            wake::a_write_release_calls_readers_of_both wake::the_last_reader_calls_their_writer wake::the_last_reader_calls_our_writer
            reenter::their_hold_count_survives_our_traffic
            expire::their_killed_reader_does_not_block_our_writer
            renew::their_watchdog_keeps_theirs renew::our_keeper_keeps_ours
            downgrade::ours_lets_their_readers_in downgrade::theirs_lets_our_readers_in
        }
        cells! { $version semaphore {Permit}:
            exclude::ours_keeps_theirs_out exclude::theirs_keeps_ours_out
            wake::our_release_calls_their_waiter wake::their_release_calls_our_waiter wake::their_waiter_comes_in_among_64_of_ours
            wake::permits_that_java_adds_serve_our_waiters
            expire::their_killed_holder_is_gone_with_its_lease expire::our_killed_holder_is_gone_with_its_lease
            expire::their_late_release_is_refused expire::our_late_release_is_refused
            renew::our_keeper_keeps_ours
            count::permits_agree_after_mixed_traffic
            force::our_force_takes_theirs
            names::braces_and_letters_mean_the_same
        }
        cells! { $version counting_semaphore:
            numbers::what_one_takes_the_other_misses
            numbers::our_release_calls_their_waiter numbers::their_release_calls_our_waiter
            numbers::permits_agree_after_mixed_traffic
            numbers::semaphore_names_with_braces_and_letters
        }
        cells! { $version latch:
            numbers::our_last_event_calls_their_waiter numbers::their_last_event_calls_our_waiter
            numbers::events_agree_after_mixed_traffic numbers::a_latch_is_set_once_by_either
            numbers::latch_names_with_braces_and_letters
        }
    };
}

/// What holds where Redisson has fenced locks.
macro_rules! fenced {
    ($version:ident) => {
        cells! { $version fenced {Fenced}:
            exclude::ours_keeps_theirs_out exclude::theirs_keeps_ours_out
            wake::our_release_calls_their_waiter wake::their_release_calls_our_waiter wake::their_waiter_comes_in_among_64_of_ours
            reenter::their_hold_count_survives_our_traffic reenter::ours_is_held_until_the_last_release
            expire::their_killed_holder_is_gone_with_its_lease expire::our_killed_holder_is_gone_with_its_lease
            expire::their_late_release_is_refused expire::our_late_release_is_refused
            renew::their_watchdog_keeps_theirs renew::our_keeper_keeps_ours
            renew::their_watchdog_does_not_keep_ours renew::our_keeper_does_not_keep_theirs
            tokens::tokens_grow_across_both tokens::tokens_grow_across_both_in_a_crowd tokens::tokens_counted_apart_do_not_grow
            force::their_force_is_told_where_another_of_ours_waits
            force::their_force_takes_ours force::our_force_takes_theirs
            names::braces_and_letters_mean_the_same
        }
    };
}

/// Long queues, of all versions at once.
mod fair_queue {
    #[test]
    fn queues_of_both_are_served_in_order() {
        crate::world::run_all(
            "fair_queue::queues_of_both_are_served_in_order",
            crate::queues::queues_of_both_are_served_in_order,
        );
    }

    #[test]
    fn waiters_of_both_have_equal_shares() {
        crate::world::run_all(
            "fair_queue::waiters_of_both_have_equal_shares",
            crate::shares::fair_waiters_of_both_have_equal_shares,
        );
    }
}

/// A plain mutex with contenders of both, with all versions.
mod plain_mutex {
    #[test]
    fn waiters_of_both_have_their_shares() {
        crate::world::run_all(
            "plain_mutex::waiters_of_both_have_their_shares",
            crate::shares::plain_waiters_of_both_have_their_shares,
        );
    }
}

/// Readers of both, and a writer of ours that waits, with all versions.
mod readers_of_both {
    #[test]
    fn a_waiting_writer_costs_our_readers_no_more_than_half_of_their_share() {
        crate::world::run_all(
            "readers_of_both::a_waiting_writer_costs_our_readers_no_more_than_half_of_their_share",
            crate::readers::a_waiting_writer_costs_our_readers_no_more_than_half_of_their_share,
        );
    }
}

mod redisson_4_7_0 {
    matrix! { V4_7_0 }
    fenced! { V4_7_0 }
    cells! { V4_7_0 reader {Read}:
        expire::our_killed_reader_does_not_block_their_writer
        renew::their_watchdog_keeps_a_read_hold_taken_twice
    }
    cells! { V4_7_0 fair_waiter {Fair}:
        expire::our_killed_holder_is_gone_with_its_lease expire::our_late_release_is_refused
    }
    cells! { V4_7_0 defects:
        defects::an_unlock_of_an_expired_fair_lock_succeeds
        defects::a_plain_unlock_does_not_call_a_fair_waiter
        defects::a_downgrade_does_not_call_waiting_readers
    }
}

mod redisson_3_52_0 {
    matrix! { V3_52_0 }
    fenced! { V3_52_0 }
    cells! { V3_52_0 fair_waiter {Fair}:
        expire::our_killed_holder_is_gone_with_its_lease expire::our_late_release_is_refused
    }
    cells! { V3_52_0 defects:
        defects::an_unlock_of_an_expired_fair_lock_succeeds
        defects::a_plain_unlock_does_not_call_a_fair_waiter
        defects::a_downgrade_does_not_call_waiting_readers
        defects::a_living_reader_keeps_a_dead_one_alive
        defects::a_read_hold_taken_twice_is_not_kept
    }
}

mod redisson_3_16_4 {
    matrix! { V3_16_4 }
    cells! { V3_16_4 reader {Read}:
        renew::their_watchdog_keeps_a_read_hold_taken_twice
    }
    cells! { V3_16_4 defects:
        defects::an_unlock_of_an_expired_fair_lock_succeeds
        defects::a_plain_unlock_does_not_call_a_fair_waiter
        defects::a_downgrade_does_not_call_waiting_readers
        defects::a_living_reader_keeps_a_dead_one_alive
        defects::a_fair_waiter_has_no_timer_once_the_lease_was_renewed
        defects::there_is_no_fenced_lock
        defects::an_unlock_of_an_expired_read_lock_succeeds
        defects::permit_ids_are_text
    }
}
