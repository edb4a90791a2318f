//! The list of all cases: the macro makes a test of each, the table lets a test see that none is forgotten.

use super::{Need, Running, World};

/// One case.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Case {
    /// The file it is in.
    pub group: &'static str,
    /// What it shows.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Need],
    /// What it does.
    pub run: fn(&World) -> Running<'_>,
}

/// Calls `$then!` with `$context` and all cases, by the file they are in, with what they need.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_conformance_case {
    ($then:path, $context:tt) => {
        $then! { $context
            mutex {
                excludes_a_second_owner [Mutex],
                wakes_a_waiter_when_released [Mutex, Push],
                loses_no_update_of_what_it_protects [Mutex],
                serves_waiters_of_one_process_in_order [Mutex],
                a_try_never_waits [Mutex],
                keeps_a_wait_limit [Mutex],
                bears_the_longest_wait_limit [Mutex],
                hands_over_inside_the_process [Mutex, HandOver],
                a_waiter_elsewhere_is_not_starved_by_local_contenders [Mutex, Push],
                a_crowd_of_waiters_asks_as_one [Mutex],
                a_lost_wake_up_costs_at_most_a_second [Mutex],
                a_refused_subscription_costs_at_most_a_second [Mutex],
                an_unanswered_subscription_costs_at_most_a_second [Mutex],
                a_dead_holder_is_gone_with_its_lease [Mutex, Lease],
                a_late_release_is_refused_and_frees_nobody [Mutex],
                a_forced_release_frees_and_tells_whom [Mutex],
                names_do_not_disturb_each_other [Mutex],
                a_waiter_that_gives_up_does_not_hold_up_the_next [Mutex],
            }
            back_off {
                a_client_that_locks_again_lets_another_in [Mutex, Push],
                a_client_that_writes_again_lets_another_in [RwLock, Push],
                a_client_that_takes_a_permit_again_lets_another_in [Semaphore, Push],
                a_woken_client_that_does_not_ask_delays_nobody [Mutex, Push],
                a_release_tells_whether_it_woke_somebody [Mutex, Push, Lease],
            }
            leaving {
                closing_gives_everything_back [Mutex],
                closing_ends_those_who_wait [Mutex],
                a_dropped_guard_is_given_back [Mutex],
                a_guard_dropped_on_a_bare_thread_is_given_back [Mutex],
                a_guard_dropped_in_a_panic_is_given_back [Mutex],
            }
            fairness {
                serves_in_order_across_clients [Fair],
                excludes_a_plain_mutex_of_the_same_name [Mutex, Fair],
                wakes_the_head_when_released [Fair, Push],
                a_lost_wake_up_costs_at_most_a_second [Fair],
                a_dead_waiter_is_skipped_when_its_place_ends [Fair, Lease],
                a_waiter_that_gives_up_leaves_no_place [Fair],
                a_try_neither_queues_nor_overtakes [Fair],
                a_withdrawn_head_passes_the_turn_on [Fair, Push],
                the_queue_is_seen_in_its_order [Fair],
                asking_again_keeps_the_place [Fair],
                a_place_lasts_while_its_waiter_lives [Fair],
                an_expired_hold_goes_to_the_head [Fair, Lease],
            }
            rwlock {
                readers_share [RwLock],
                a_writer_excludes_readers_and_writers [RwLock],
                a_writer_waits_for_the_longest_reader [RwLock],
                wakes_a_writer_and_then_all_readers [RwLock, Push],
                a_lost_wake_up_costs_at_most_a_second [RwLock],
                a_dead_reader_is_gone_with_its_lease [RwLock, Lease],
                writers_do_not_starve [RwLock],
                a_reader_yields_only_to_writers_that_came_first [RwLock, RefusesLate],
                a_reader_that_asked_first_is_not_held_up_by_a_writer [RwLock],
                a_writer_that_gives_up_lets_readers_in [RwLock, Push],
                a_dead_waiting_writer_is_skipped [RwLock, Lease],
                a_downgrade_lets_readers_in_and_no_writer_between [RwLock],
                a_downgrade_after_a_forced_release_fails [RwLock],
                a_downgraded_hold_is_kept [RwLock],
                a_downgrade_needs_the_guard_of_this_lock [RwLock],
                an_owner_reads_while_it_writes [RwLock],
                releasing_one_side_leaves_the_other [RwLock],
                an_owner_that_reads_and_wants_to_write_is_told [RwLock],
                a_forced_release_frees_both_sides [RwLock],
            }
            semaphore {
                gives_out_so_many_and_no_more [Semaphore],
                never_are_more_inside [Semaphore],
                takes_several_at_once [Semaphore],
                wakes_a_waiter_when_a_permit_comes_back [Semaphore, Push],
                a_lost_wake_up_costs_at_most_a_second [Semaphore],
                two_waiters_for_two_permits_both_succeed [Semaphore],
                a_large_request_keeps_its_turn [Semaphore],
                a_crash_gives_its_permits_back [Semaphore, Lease],
                another_size_is_refused_naming_the_stored_one [Semaphore],
                zero_and_too_many_are_refused [Semaphore],
                keeps_its_size_when_all_permits_are_back [Semaphore],
                growing_tells_those_who_wait [Semaphore, Push],
                a_handle_of_any_size_uses_what_is_there [Semaphore],
                a_waiter_learns_of_a_resize [Semaphore],
                shrinking_takes_nothing_from_holders [Semaphore],
                is_removed_only_when_nobody_holds_a_permit [Semaphore],
                the_size_is_set_once [Semaphore],
            }
            counting {
                counts_what_is_given_and_taken [CountingSemaphore],
                wakes_a_waiter_when_enough_is_there [CountingSemaphore, Push],
                a_lost_wake_up_costs_at_most_a_second [CountingSemaphore],
                gives_out_exactly_what_is_there [CountingSemaphore],
                nothing_comes_back_by_itself [CountingSemaphore],
                taking_none_is_immediate_and_changes_nothing [CountingSemaphore],
                what_is_given_before_it_is_set_stays [CountingSemaphore],
                is_set_once [CountingSemaphore],
                adding_may_go_below_zero [CountingSemaphore],
                drains_all_there_are [CountingSemaphore],
                removing_starts_anew [CountingSemaphore],
                giving_none_is_refused [CountingSemaphore],
                a_waiter_that_gives_up_takes_nothing [CountingSemaphore],
                a_lost_answer_counts_once [CountingSemaphore],
            }
            latch {
                opens_when_all_events_have_happened [Latch],
                wakes_all_who_wait [Latch, Push],
                a_lost_wake_up_costs_at_most_a_second [Latch],
                many_events_and_many_waiters_all_end [Latch],
                further_events_do_nothing [Latch],
                is_set_only_while_open [Latch],
                a_missing_one_is_open [Latch],
                removing_lets_those_who_wait_go_on [Latch, Push],
                stays_closed_without_a_lease [Latch],
                keeps_a_wait_limit [Latch],
                a_latch_of_none_is_refused [Latch],
                a_lost_answer_counts_once [Latch],
                a_repeated_set_does_not_close_it_again [Latch],
            }
            lease {
                a_kept_hold_outlives_many_leases [Mutex],
                an_explicit_lease_ends_by_itself [Mutex],
                validity_ends_before_the_lease_does [Mutex],
                what_remains_goes_down_until_renewed [Mutex],
                extending_lengthens [Mutex],
                extending_never_shortens [Mutex, Lease],
                a_lost_hold_cannot_be_extended [Mutex],
                a_lease_out_of_range_is_refused [Mutex],
                work_is_dropped_when_the_hold_is_lost [Mutex],
                a_loss_is_told_within_a_third_of_the_lease [Mutex],
                a_deleted_hold_is_told_at_once [Mutex, Events],
                a_long_explicit_lease_is_looked_at [Mutex],
                an_unreachable_store_is_told_at_the_deadline [Mutex],
                renewals_that_fail_for_a_while_cost_nothing [Mutex],
                renewals_travel_together [Mutex],
                a_hold_near_its_end_is_not_asked_about_all_the_time [Mutex, Lease],
            }
            fencing {
                tokens_grow_across_releases_and_clients [Mutex, Fencing],
                tokens_grow_across_hand_overs [Mutex, Fencing, HandOver],
                tokens_grow_across_expiry [Mutex, Fencing, Lease],
                tokens_grow_across_force [Mutex, Fencing],
                tokens_grow_across_lost_answers [Mutex, Fencing],
                a_repeated_grant_has_no_smaller_token [Mutex, Fencing],
                re_entry_mints_no_token [Mutex, Fencing],
                readers_and_writers_tokens_are_in_order [RwLock, Fencing],
            }
            names {
                any_text_is_a_name [Mutex, AnyName],
                any_text_is_a_name_for_every_kind [AnyName],
                a_bad_name_is_refused_by_every_handle [],
                a_name_has_one_kind [],
                a_free_name_may_change_its_kind [],
            }
            cancel {
                a_free_mutex_is_left_wherever_it_is_dropped [Mutex],
                a_held_mutex_is_left_wherever_it_is_dropped [Mutex],
                a_free_fair_mutex_is_left_wherever_it_is_dropped [Fair],
                a_held_fair_mutex_is_left_wherever_it_is_dropped [Fair],
                a_free_read_is_left_wherever_it_is_dropped [RwLock],
                a_held_read_is_left_wherever_it_is_dropped [RwLock],
                a_free_write_is_left_wherever_it_is_dropped [RwLock],
                a_held_write_is_left_wherever_it_is_dropped [RwLock],
                a_free_permit_is_left_wherever_it_is_dropped [Semaphore],
                a_held_permit_is_left_wherever_it_is_dropped [Semaphore],
                a_held_multi_lock_is_left_wherever_it_is_dropped [Mutex],
                a_waiter_of_any_claim_that_gives_up_leaves_no_place [],
                a_hand_over_is_left_wherever_it_is_dropped [Mutex, HandOver],
                a_try_is_left_wherever_it_is_dropped [],
                a_dropped_release_still_releases [],
                a_dropped_extension_harms_nothing [Mutex],
                a_dropped_downgrade_releases_both_sides [RwLock],
                an_owner_can_take_it_after_a_dropped_acquire [Mutex],
                a_dropped_wait_for_a_number_takes_nothing [CountingSemaphore],
                a_dropped_wait_for_a_latch_changes_nothing [Latch],
            }
            session {
                the_holds_of_a_dead_client_end_with_its_session [Session],
                the_places_of_a_dead_client_end_with_its_session [Session],
                a_request_of_an_ended_session_is_not_granted [Session],
                a_kept_alive_session_keeps_its_holds [Session],
                an_ended_session_ends_every_hold_of_the_client [Session],
                a_cut_connection_makes_no_second_holder [Mutex, Session],
            }
            stalled {
                a_place_of_a_call_that_does_not_run_is_taken_back [Session],
                a_grant_of_a_call_that_does_not_run_is_taken_back [Session],
                a_downgrade_that_did_not_run_goes_on [RwLock, Session],
            }
            contract {
                acquiring_twice_is_once [],
                releasing_twice_is_once [],
                a_release_by_another_changes_nothing [],
                a_renewal_by_another_is_gone [],
                a_lease_is_lengthened_and_never_shortened [Lease],
                an_ended_lease_is_gone [Lease],
                renewals_are_answered_one_by_one [Mutex],
                a_late_acquire_changes_nothing [RefusesLate],
                a_late_count_changes_nothing [RefusesLate],
                counting_twice_is_once [CountingSemaphore],
                a_hand_over_is_one_step [Mutex, HandOver],
                a_late_successor_is_not_granted [Mutex, HandOver, RefusesLate],
                several_names_are_taken_together [Mutex, AcquireAll],
                several_names_or_none [Mutex, AcquireAll],
                several_names_with_a_wrong_kind_change_nothing [Mutex, RwLock, AcquireAll],
                which_names_go_together_is_told [Mutex, AcquireAll],
                a_subscriber_is_notified_of_what_happens_afterwards [Push],
                a_subscriber_is_notified_when_a_number_changes [Push],
                busy_tells_when_to_ask_again [],
            }
            contention {
                a_range_of_tokens_is_given_out_once [Mutex, Fencing, TokenRanges],
                a_hold_is_kept_while_no_other_client_waits [Mutex, HandOverIfAlone],
                a_hold_is_not_kept_when_another_client_waits [Mutex, HandOverIfAlone],
                a_notification_brings_the_grant [Mutex, PushedGrants],
                a_waiter_that_left_is_granted_nothing [Mutex, PushedGrants, RefusesLate],
                a_waiter_behind_its_own_process_has_its_place_before_the_release [Mutex, QueuesMutexes],
            }
            reentry {
                an_owner_takes_it_again_without_a_request [Mutex],
                the_last_guard_frees_it_also_when_dropped [Mutex],
                others_are_excluded [Mutex],
                a_guard_is_taken_again [Mutex],
                a_lost_hold_is_not_entered_again [Mutex],
                re_entry_never_shortens_the_lease [Mutex],
                two_tasks_of_one_owner_come_in_together [Mutex],
                an_owner_of_another_client_is_refused [Mutex],
                every_lock_can_be_taken_again [Mutex],
            }
            faults {
                a_grant_without_an_answer_is_asked_for_again [Mutex],
                a_grant_with_a_broken_answer_is_asked_for_again [Mutex],
                a_lost_request_is_sent_again [Mutex],
                a_refusal_is_tried_again [Mutex],
                a_try_survives_a_lost_answer [],
                a_release_without_an_answer_is_success [],
                a_dropped_guard_is_given_back_despite_trouble [Mutex],
                a_failed_release_goes_on_in_the_background [Mutex],
                an_unreachable_store_is_told_within_the_wait [],
                a_try_at_an_unreachable_store_is_an_error [Mutex],
                a_call_without_limit_gives_an_unreachable_store_up [Mutex],
                a_waiter_survives_trouble_with_the_store [Mutex],
                a_grant_that_nobody_heard_of_is_given_back [],
                a_hand_over_without_an_answer_is_one_hold [Mutex, HandOver],
                a_storm_of_faults_loses_no_update [Mutex],
            }
            inspect {
                shows_who_holds_what [],
                shows_the_token [Mutex, Fencing],
                shows_nothing_where_nothing_lies [Mutex, Lease],
                shows_numbers [Semaphore, CountingSemaphore, Latch],
                shows_who_waits [Fair],
                lists_everything_page_by_page [Mutex],
                lists_what_matches_a_pattern [Mutex],
                shows_who_is_behind_an_owner [Mutex],
                a_client_that_holds_something_tells_who_it_is [Mutex],
            }
        }
    };
}

macro_rules! table {
    (() $($group:ident { $($case:ident [$($need:ident),*],)* })*) => {
        /// All cases.
        pub const CASES: &[Case] = &[
            $($(Case {
                group: stringify!($group),
                name: stringify!($case),
                needs: &[$(Need::$need),*],
                // Boxed here, so that it is compiled here once, and not in every test program.
                run: |world| Box::pin(super::$group::$case(world)),
            },)*)*
        ];
    };
}

for_each_conformance_case!(table, ());

/// Makes one test of each case for a store, in a module per file: `conformance!(MyHarness);`.
#[macro_export]
macro_rules! conformance {
    ($harness:expr) => {
        $crate::for_each_conformance_case!($crate::conformance_tests, ($harness, any()));
    };
    ($harness:expr, ignored) => {
        $crate::for_each_conformance_case!($crate::conformance_tests, ($harness, all()));
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    (($harness:expr, $ignored:meta) $($group:ident { $($case:ident [$($need:ident),*],)* })*) => {
        $(
            mod $group {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[test]
                    #[cfg_attr($ignored, ignore = "asked for by name, or with --include-ignored")]
                    fn $case() {
                        let case = $crate::conformance::case(stringify!($group), stringify!($case));
                        let name = concat!(stringify!($group), "::", stringify!($case));
                        $crate::conformance::run($harness, name, case.needs, case.run);
                    }
                )*
            }
        )*
    };
}
