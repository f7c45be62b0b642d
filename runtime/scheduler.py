"""vLLM's schedulers, under a plan of the frame clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from omni_speak.runtime.frame_clock import Plan

if TYPE_CHECKING:
    # The class the mixin is written against; at run time it stands before either scheduler.
    class _Scheduler(Scheduler):
        max_num_scheduled_tokens: int
else:
    _Scheduler = object


class FrameClockMixin(_Scheduler):
    """Applies `next_plan` to one step; without one, vLLM's own order holds.

    A request that the plan leaves out keeps its place in `running`, its KV and its slot. Those in
    `waiting` that never ran are the newcomers, taken in the plan's order, too.
    """

    next_plan: Plan | None = None
    last_step: tuple[int, int] = (0, 0)
    """The last step's requests, and the tokens it had beyond one each."""

    def is_prefilling(self, request_id: str) -> bool:
        """Its prompt, or what a preemption lost of it, is not through."""
        request = self.requests.get(request_id)
        return request is None or (
            request.status != RequestStatus.RUNNING
            or request.num_computed_tokens < request.num_prompt_tokens
        )

    def is_in_flight(self, request_id: str) -> bool:
        """A step of it is under way whose token is not known yet (async scheduling)."""
        request = self.requests.get(request_id)
        return request is not None and request.num_output_placeholders > 0

    def has_work(self, plan: Plan) -> bool:
        """A step under this plan would run something or report an end."""
        return bool(plan.rows or plan.prefills) or self.has_finished_requests()

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        plan, self.next_plan = self.next_plan, None
        output = self._schedule(plan, *args, **kwargs)
        rows = len(output.num_scheduled_tokens)
        self.last_step = rows, output.total_num_scheduled_tokens - rows
        return output

    def _schedule(self, plan: Plan | None, *args: Any, **kwargs: Any) -> SchedulerOutput:
        if plan is None:
            return super().schedule(*args, **kwargs)
        order = {request_id: i for i, request_id in enumerate((*plan.rows, *plan.prefills))}
        last = len(order)
        # Held ones last: they lose least if vLLM must preempt somebody.
        self.running.sort(key=lambda request: order.get(request.request_id, last))
        for request in self.running:
            if request.request_id not in order:
                # Seam: vLLM's own way to leave a running request out of a step, the next one's
                # number being `current_step + 1`.
                request.next_decode_eligible_step = self.current_step + 2
        waiting = list(self.waiting)
        self.waiting.remove_requests(waiting)
        held = [request for request in waiting if request.request_id not in order]
        planned = (request for request in waiting if request.request_id in order)
        for request in sorted(planned, key=lambda request: order[request.request_id]):
            self.waiting.add_request(request)
        most = self.max_num_scheduled_tokens
        self.max_num_scheduled_tokens = min(most, len(plan.rows) + plan.prefill_tokens)
        try:
            return super().schedule(*args, **kwargs)
        finally:
            self.max_num_scheduled_tokens = most
            for request in reversed(held):
                self.waiting.prepend_request(request)


class FrameClockScheduler(FrameClockMixin, Scheduler):
    """For steps one after the other."""


class AsyncFrameClockScheduler(FrameClockMixin, AsyncScheduler):
    """For steps scheduled before the last one's tokens are known."""
