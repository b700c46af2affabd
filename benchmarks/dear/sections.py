"""The page of results that goals.py and update_cost.py share."""

HEAD = """# What a replay memory needs: steps, and milliseconds of an update

"""
STEPS, COST = "By how many steps the goals are reached", "What an update costs"
ORDER = (STEPS, COST)
