"""The state that all listeners of a broker share, and the state of each listener."""

from broker.budget import LOOP_TURN_NS_MAX
from broker.config import BROKER_LISTENER
from tests.unit.broker.rig import Rig


def test_clients_share_a_turn_of_the_loop_and_other_brokers_never_wait_for_them() -> None:
    listeners = Rig().broker.listeners
    listeners.open_to_brokers()
    budgets = {name: one.budget for name, one in listeners.receptions.items()}
    assert not budgets["HOST"].is_spent(0)
    later_ns = LOOP_TURN_NS_MAX + 1
    assert budgets["MILL"].is_spent(later_ns)
    assert not budgets[BROKER_LISTENER].is_spent(later_ns)
