"""One engine for several workers: one queue for all of them, also when workers end."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from pellucid.local.engine_sharing import EngineServer, FromWorker, RemoteEngine, ToWorker, WorkerConnection
from pellucid.local.model_index import find_model
from pellucid.local.supervisor import EngineQueue, EngineState
from tests.waiting import LIMIT_SECONDS, loop_turns


class Engine(EngineState):
    """One that has no process."""

    api_key = "key"
    base_url = "http://127.0.0.1:1/v1"

    def __init__(self) -> None:
        super().__init__()
        self.queue = EngineQueue(1)
        self.set_state("ready")


class Worker:
    """Both ends, and messages that take a while."""

    def __init__(self, lender: EngineServer) -> None:
        self.dead = False
        loop = asyncio.get_running_loop()

        def to_server(message: FromWorker) -> None:
            if not self.dead:
                loop.call_soon(self._to, message)

        def to_worker(message: ToWorker) -> None:
            loop.call_soon(self.engine.receive, message)

        self.engine = RemoteEngine(find_model("smollm2-135m"), "key", to_server)
        self.connection: WorkerConnection = lender.connect(to_worker)

    def _to(self, message: FromWorker) -> None:
        if not self.dead:
            self.connection.receive(message)

    def die(self) -> None:
        self.dead = True
        self.connection.close()


@given(seed=st.integers(0, 2**32), workers=st.integers(1, 4), requests=st.integers(1, 20))
def test_requests_run_one_at_a_time_and_all_are_served(seed: int, workers: int, requests: int) -> None:
    dice = random.Random(seed)

    async def main() -> None:
        engine = Engine()
        lender = EngineServer(engine)  # type: ignore[arg-type]
        crew = [Worker(lender) for _ in range(workers)]
        holding: list[Worker] = []

        async def ask(worker: Worker) -> None:
            positions: list[int] = []
            await loop_turns(dice.randrange(40))
            await worker.engine.queue.acquire(positions.append)
            if not worker.dead:
                holding.append(worker)
                assert sum(not one.dead for one in holding) == 1
                assert positions == sorted(positions, reverse=True)
                try:
                    await loop_turns(dice.randrange(20))
                finally:
                    holding.remove(worker)
                    worker.engine.queue.release()

        requests_of_workers = [(worker, asyncio.create_task(ask(worker))) for worker in dice.choices(crew, k=requests)]
        await loop_turns(dice.randrange(40))
        for _, task in requests_of_workers:
            if dice.random() < 0.2:
                task.cancel()
        if workers > 1 and dice.random() < 0.5:
            crew[0].die()
        alive = [task for worker, task in requests_of_workers if worker is not crew[0] or not worker.dead]
        await asyncio.wait_for(asyncio.gather(*alive, return_exceptions=True), LIMIT_SECONDS)
        assert not [task for task in alive if not task.cancelled() and task.exception()]
        for worker, task in requests_of_workers:
            if worker.dead:
                task.cancel()
        await loop_turns(20)
        assert (engine.queue.running, engine.queue.waiting) == (0, 0)
        assert {(one.engine.queue.running, one.engine.queue.waiting) for one in crew if not one.dead} == {(0, 0)}
        lender.close()

    asyncio.run(main())
