"""What each parameter takes, and every handler that can't be called with certainty."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import pytest
from pydantic import BaseModel

from ackfloor.declare.signature import (
    Signature,
    admits_null,
    read_signature,
    result_hint,
    yielded_type,
)
from ackfloor.delivery import Delivery
from ackfloor.errors import ConfigError

if TYPE_CHECKING:
    from decimal import Decimal


class Order(BaseModel):
    """A value."""

    id: int


class Resources:
    """A state: a base class of what the lifespan yields."""


class Database(Resources):
    """A state."""


def read(function: Callable[..., object], state_type: object = None) -> Signature:
    """The signature of a handler named bill."""
    return read_signature(function, handler="bill", state_type=state_type)


def test_the_first_parameter_takes_the_value() -> None:
    """A handler of one parameter decodes by that parameter's hint."""

    async def bill(order: Order) -> None: ...

    assert read(bill) == Signature(
        is_async=True,
        value_type=Order,
        accepts_null=False,
        value_param="order",
        delivery_param=None,
    )


def test_the_delivery_is_found_by_its_hint_wherever_it_stands() -> None:
    """First, last or behind a star: `Delivery` says what it takes."""

    def last(order: Order, delivery: Delivery) -> None: ...
    def first(d: Delivery, order: Order) -> None: ...
    def named(order: Order, *, d: Annotated[Delivery, "x"]) -> None: ...
    def optional(order: Order, d: Delivery | None = None) -> None: ...

    assert read(last).delivery_param == "delivery"
    assert read(first).delivery_param == "d"
    assert read(named).delivery_param == "d"
    assert read(optional).delivery_param == "d"
    assert {read(f).value_param for f in (last, first, named, optional)} == {"order"}


def test_a_handler_of_the_delivery_alone_decodes_nothing() -> None:
    """It reads `delivery.value` itself, so null values reach it as well."""

    def bill(delivery: Delivery) -> None: ...

    signature = read(bill)

    assert signature.value_param is None
    assert signature.value_type is bytes
    assert signature.accepts_null
    assert not signature.is_async


def test_the_state_is_matched_by_what_the_lifespan_yields() -> None:
    """By its own class or by a base class of the application's."""

    def own(order: Order, database: Database, d: Delivery) -> None: ...
    def base(database: Resources, order: Order) -> None: ...
    def raw(d: Delivery, database: Database) -> None: ...

    assert read(own, Database).state_params == (("database", Database),)
    assert read(base, Database) == Signature(
        is_async=False,
        value_type=Order,
        accepts_null=False,
        value_param="order",
        delivery_param=None,
        state_params=(("database", Resources),),
    )
    assert read(raw, Database).value_param is None


def test_a_general_hint_means_the_value_and_not_the_state() -> None:
    """`BaseModel`, `dict` and `object` are bases of many states and say nothing of them."""

    def model(payload: BaseModel) -> None: ...
    def anything(payload: object) -> None: ...

    assert read(model, Order).value_param == "payload"
    assert read(anything, Database).value_param == "payload"


@pytest.mark.parametrize(
    ("hint", "admits"),
    [
        (Order | None, True),
        (Annotated[Order | None, "x"], True),
        (int | Annotated[str | None, "x"], True),
        (Any, True),
        (None, True),
        (Order, False),
        (bytes, False),
        (list[int | None], False),
    ],
)
def test_or_none_admits_tombstones(hint: object, admits: bool) -> None:
    """Only at the top of the hint: a list of optional numbers is no tombstone."""
    assert admits_null(hint) is admits


def test_parameters_with_a_default_are_left_alone() -> None:
    """What has a default and is neither value, delivery nor state keeps it."""

    def bill(order: Order, dry_run: bool = False) -> None: ...

    assert read(bill).value_param == "order"


def test_hints_of_an_enclosing_function_resolve_where_the_handler_uses_them() -> None:
    """A closure knows the local classes that its body names."""

    class Local(BaseModel):
        id: int

    def bill(order: Local) -> None:
        assert isinstance(order, Local)

    assert read(bill).value_type is Local


def test_a_decorated_handler_is_read_through_functools_wraps() -> None:
    """The hints of what is wrapped are those of the wrapper."""

    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> None:
            await function(*args, **kwargs)

        return wrapper

    @traced
    async def bill(order: Order, delivery: Delivery) -> None: ...

    signature = read(bill)

    assert signature.is_async
    assert (signature.value_param, signature.delivery_param) == ("order", "delivery")


def _generator(order: Order) -> Iterator[None]:
    yield None


async def _async_generator(order: Order) -> AsyncIterator[None]:
    yield None


class _Service:
    def method(self, order: Order) -> None: ...


def _wrapped_wrongly() -> Callable[..., Any]:
    async def bill(order: Order) -> None: ...

    @functools.wraps(bill)
    def wrapper(*args: Any) -> Any:
        return bill(*args)

    return wrapper


def _untyped(order) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


def _unresolvable(order: Decimal) -> None: ...


def _star(*orders: Order) -> None: ...


def _double_star(order: Order, **rest: Order) -> None: ...


def _extra(order: Order, database: Database) -> None: ...


def _two_deliveries(order: Order, d: Delivery, e: Delivery) -> None: ...


def _nothing() -> None: ...


def _keyword_only(*, order: Order) -> None: ...


def _positional_only(order: Order, /, delivery: Delivery) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (_generator, "a generator"),
        (_async_generator, "a generator"),
        (_Service.method, "handlers.bill.self='self': an unbound method"),
        (_Service().method, "a bound method"),
        (functools.partial(_extra, database=Database()), "not a function"),
        (_wrapped_wrongly(), "a decorator's `def` around an `async def`"),
        (_untyped, "handlers.bill.order='order': has no type hint"),
        (_unresolvable, "its hint can't be resolved: name 'Decimal' is not defined; import it"),
        (_star, "handlers.bill.orders="),
        (_double_star, "handlers.bill.rest="),
        (_extra, "no lifespan= with a return hint yields it; give it a default"),
        (_two_deliveries, "handlers.bill.e="),
        (_nothing, "takes neither the value nor the delivery"),
        (_keyword_only, "is keyword-only"),
        (_positional_only, "is positional-only"),
    ],
)
def test_what_can_not_be_called_is_refused_with_the_reason(
    function: Callable[..., object], told: str
) -> None:
    """The message names handler, parameter and fix, and comes before any record."""
    with pytest.raises(ConfigError) as caught:
        read(function)

    assert told in str(caught.value)
    assert "handlers.bill" in str(caught.value)


def test_a_handler_of_the_state_alone_is_refused() -> None:
    """It could not tell which record it handles; often the state's type is the value's too."""

    def bill(order: dict[str, int]) -> None: ...

    with pytest.raises(ConfigError, match="takes only what lifespan= yields"):
        read(bill, dict[str, int])


def test_an_extra_parameter_is_told_what_the_lifespan_yields() -> None:
    """So that a wrong class is seen at once."""

    def bill(order: Order, other: int) -> None: ...

    with pytest.raises(ConfigError, match="lifespan= yields Database"):
        read(bill, Database)


def test_what_a_lifespan_yields_is_read_from_its_return_hint() -> None:
    """With or without `@asynccontextmanager`; a silent hint yields nothing."""

    async def bare(app: object) -> AsyncIterator[Database]:
        yield Database()

    @contextlib.asynccontextmanager
    async def decorated(app: object) -> AsyncGenerator[Database, None]:
        yield Database()

    def made(app: object) -> AbstractAsyncContextManager[Database]:
        return decorated(app)

    async def nothing(app: object) -> AsyncIterator[None]:
        yield

    def silent(app):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return None

    def unresolvable(app: object) -> AsyncIterator[Decimal]:
        raise NotImplementedError

    assert [yielded_type(f) for f in (bare, decorated, made)] == [Database] * 3
    assert [yielded_type(f) for f in (nothing, silent, unresolvable)] == [None] * 3


def read_batch(function: Callable[..., object], state_type: object = None) -> Signature:
    """The signature of a batch handler named bill."""
    return read_signature(function, handler="bill", state_type=state_type, batch=True)


def test_a_batch_handler_takes_lists() -> None:
    """What decodes is the type of their items; state comes as it is."""

    def bill(
        db: Database, orders: list[Order | None], ds: Annotated[list[Delivery], "x"]
    ) -> None: ...

    signature = read_batch(bill, Database)
    assert (signature.value_param, signature.value_type) == ("orders", Order | None)
    assert (signature.accepts_null, signature.delivery_param) == (True, "ds")
    assert signature.state_params == (("db", Database),)


def test_a_batch_handler_may_take_the_deliveries_alone() -> None:
    """Nothing is decoded then."""

    async def bill(deliveries: list[Delivery]) -> None: ...

    signature = read_batch(bill)
    assert (signature.value_param, signature.delivery_param) == (None, "deliveries")


def test_lists_and_batches_belong_together() -> None:
    """One without the other is refused with the fix."""

    def one_value(order: Order) -> None: ...
    def one_delivery(orders: list[Order], delivery: Delivery) -> None: ...
    def many(orders: Order, deliveries: list[Delivery]) -> None: ...

    with pytest.raises(ConfigError, match=r"one value, and a batch has many; write list\[...\]"):
        read_batch(one_value)
    with pytest.raises(ConfigError, match=r"a batch has many deliveries; write list\[Delivery\]"):
        read_batch(one_delivery)
    with pytest.raises(ConfigError, match="takes one record at a time; write `Delivery`, or pass"):
        read(many)


def test_a_single_record_may_still_be_a_list() -> None:
    """Without batch= it is what one record decodes to."""

    def bill(numbers: list[int]) -> None: ...

    assert read(bill).value_type == list[int]


def test_a_return_hint_that_promises_a_result_is_told_as_it_is_written() -> None:
    """Also where it is a name that only type checkers know, or below a decorator."""

    def model(order: Order) -> Order: ...
    def maybe(order: Order) -> Order | None: ...
    def unknown(order: Order) -> Decimal: ...

    @functools.wraps(model)
    def wrapped(*args: Any) -> None: ...

    assert [*map(result_hint, (model, maybe, unknown, wrapped))] == [
        "Order", "Order | None", "Decimal", "Order",
    ]  # fmt: skip


def test_a_return_hint_that_promises_nothing_is_none() -> None:
    """Or that leaves it open, or is not there: nobody knows that something would be lost."""

    def nothing(order: Order) -> None: ...
    def never(order: Order) -> NoReturn: ...
    def anything(order: Order) -> Any: ...
    def whatever(order: Order) -> object: ...
    def unhinted(order: Order): ...  # type: ignore[no-untyped-def]  # noqa: ANN202

    assert not any(map(result_hint, (nothing, never, anything, whatever, unhinted)))
